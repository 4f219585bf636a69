"""Failure groups as a person sees them: how many, since when, how the trend is, and what is decided."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

from django.db import transaction
from django.db.models import Count, Max, Min, Q
from django.utils import timezone

from django_eventbus import audit
from django_eventbus.matching import letters_of
from django_eventbus.models import DeadLetter, FailureGroup
from django_eventbus.models.dead_letter import DeadLetterQuerySet
from django_eventbus.selections import Selection

BUCKETS = 24
#: Kinds that are no failure of a handler, and so are shown beside the groups.
BESIDE: dict[str, tuple[str, ...]] = {
    "undecodable": (DeadLetter.Kind.UNDECODABLE,),
    "unmatched": (DeadLetter.Kind.UNMATCHED,),
    "broker": (
        DeadLetter.Kind.DELIVERY_LIMIT,
        DeadLetter.Kind.EXPIRED,
        DeadLetter.Kind.MAXLEN,
        DeadLetter.Kind.REJECTED,
        DeadLetter.Kind.FOREIGN,
    ),
}
_KINDS_BESIDE = tuple(kind for kinds in BESIDE.values() for kind in kinds)


@dataclass(slots=True, kw_only=True)
class Group:
    """A failure group with what its waiting dead letters tell."""

    row: FailureGroup
    count: int
    first_seen: datetime
    last_seen: datetime
    status: str
    #: It was re-driven or resolved, and here it is again.
    is_back: bool = False
    #: The id of its latest dead letter.
    sample: int | None = None
    #: Dead letters parked in each of BUCKETS equal spans, the oldest first.
    trend: list[int] = field(default_factory=list)

    @property
    def selection(self) -> Selection:
        return Selection.of([("group", self.row.fingerprint)])


def groups(
    selection: Selection, *, using: str, limit: int = 50, offset: int = 0, span: timedelta
) -> tuple[list[Group], int]:
    """Return a page of the largest groups among *selection*, and how many there are in all."""
    counted = _counted(selection, using)
    page = counted[offset : offset + limit]
    _add_details(page, letters_of(selection, using), span)
    return page, len(counted)


def buckets(selection: Selection, *, using: str) -> dict[str, int]:
    """Count what waits beside the groups: undecodable, unmatched, and dead on the broker."""
    kinds = dict(
        FailureGroup.objects.using(using).filter(kind__in=_KINDS_BESIDE).values_list("pk", "kind")
    )
    counts = _counts(letters_of(selection, using).filter(fingerprint__in=list(kinds)))
    return {
        name: sum(count for pk, (count, _, _) in counts.items() if kinds[pk] in of)
        for name, of in BESIDE.items()
    }


def _counted(selection: Selection, using: str) -> list[Group]:
    now = timezone.now()
    counts = _counts(letters_of(selection, using))
    rows = FailureGroup.objects.using(using).exclude(kind__in=_KINDS_BESIDE)
    found = [_group(row, counts[row.pk], now) for row in rows if row.pk in counts]
    return sorted(found, key=lambda group: (-group.count, group.row.pk))


def _counts(letters: DeadLetterQuerySet) -> dict[str, tuple[int, datetime, datetime]]:
    # By state too, one at a time: so the index is read in its order and no row is looked at.
    counts: dict[str, tuple[int, datetime, datetime]] = {}
    waiting = letters.filter(state__in=DeadLetter.WAITING).order_by()
    figures = (Count("pk"), Min("parked_at"), Max("parked_at"))
    for pk, count, first, last in waiting.values_list("fingerprint").annotate(*figures):
        counts[pk] = (count, first, last)
    return counts


def _group(row: FailureGroup, figures: tuple[int, datetime, datetime], now: datetime) -> Group:
    count, first, last = figures
    return Group(row=row, count=count, first_seen=first, last_seen=last, status=row.status_at(now))


def _add_details(page: Iterable[Group], letters: DeadLetterQuerySet, span: timedelta) -> None:
    waiting = letters.filter(state__in=DeadLetter.WAITING)
    began = timezone.now() - span
    for group in page:
        mine = waiting.filter(fingerprint=group.row.pk)
        group.sample = mine.filter(parked_at=group.last_seen).values_list("pk", flat=True).first()
        group.trend = trend_of(mine, began, span)
        group.is_back = _is_back(group, letters.db)


def trend_of(letters: DeadLetterQuerySet, began: datetime, span: timedelta) -> list[int]:
    """Count what was parked in each of BUCKETS equal spans since *began*."""
    step = span / BUCKETS
    edges = [began + step * number for number in range(BUCKETS + 1)]
    spans = pairwise(edges)
    counts = {
        f"b{number}": Count("pk", filter=Q(parked_at__gte=start, parked_at__lt=end))
        for number, (start, end) in enumerate(spans)
    }
    return list(letters.filter(parked_at__gte=began).aggregate(**counts).values())


def _is_back(group: Group, using: str) -> bool:
    is_resolved = group.row.status == FailureGroup.Status.RESOLVED
    if is_resolved and group.row.changed_at and group.last_seen > group.row.changed_at:
        return True
    letters = DeadLetter.objects.using(using).filter(fingerprint=group.row.pk)
    failed_again = letters.filter(state=DeadLetter.State.OPEN, round__gt=0)
    healed = letters.filter(state=DeadLetter.State.HEALED, round__gt=0)
    return failed_again.exists() or healed.filter(closed_at__lt=group.last_seen).exists()


def decide(
    fingerprint: str,
    verb: str,
    *,
    by: str,
    using: str,
    note: str = "",
    until: datetime | None = None,
) -> FailureGroup:
    """Acknowledge, ignore (*until*), resolve or reopen a group; the audit has it."""
    with transaction.atomic(using=using):
        group = FailureGroup.objects.using(using).select_for_update().get(pk=fingerprint)
        if verb == "ignore":
            if until is None:
                raise ValueError("ignore needs a time until which")
            group.ignore(until, by, note)
        else:
            _DECISIONS[verb](group, by, note)
        audit.record(
            f"{verb} group", by=by, why=note, selection=f"group={fingerprint}", using=using
        )
    return group


_DECISIONS = {
    "acknowledge": FailureGroup.acknowledge,
    "resolve": FailureGroup.resolve,
    "reopen": FailureGroup.reopen,
}
