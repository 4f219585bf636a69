"""Failure groups as a person sees them: how many, since when, how the trend is, and what is decided."""

from __future__ import annotations

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


def queues_of(fingerprint: str, using: str) -> list[str]:
    """Return the queues that dead letters of the group are on, whatever has become of them."""
    mine = DeadLetter.objects.using(using).filter(fingerprint=fingerprint).order_by()
    return sorted(mine.values_list("queue", flat=True).distinct())


def _counted(selection: Selection, using: str) -> list[Group]:
    now = timezone.now()
    counts = _counts(letters_of(selection, using))
    rows = FailureGroup.objects.using(using).exclude(kind__in=_KINDS_BESIDE)
    found = [_group(row, counts[row.pk], now) for row in rows if row.pk in counts]
    return sorted(found, key=lambda group: (-group.count, group.row.pk))


def _counts(letters: DeadLetterQuerySet) -> dict[str, tuple[int, datetime, datetime]]:
    # Not by pk, which the index of the groups does not have: the rows would be looked at.
    counts: dict[str, tuple[int, datetime, datetime]] = {}
    waiting = letters.filter(state__in=DeadLetter.WAITING).order_by()
    figures = {"count": Count("*"), "first": Min("parked_at"), "last": Max("parked_at")}
    for fingerprint, *numbers in waiting.values_list("fingerprint").annotate(**figures):
        counts[fingerprint] = tuple(numbers)
    return counts


def _group(row: FailureGroup, figures: tuple[int, datetime, datetime], now: datetime) -> Group:
    count, first, last = figures
    return Group(row=row, count=count, first_seen=first, last_seen=last, status=row.status_at(now))


def _add_details(page: list[Group], letters: DeadLetterQuerySet, span: timedelta) -> None:
    """Add what a page shows of each group, by one question for all of them."""
    keys = [group.row.pk for group in page]
    waiting = letters.filter(state__in=DeadLetter.WAITING).order_by()
    trends = _trends(waiting.filter(fingerprint__in=keys), span)
    samples = _samples(waiting, page)
    returned = _returned(page, letters.db)
    for group in page:
        group.trend = trends.get(group.row.pk, [0] * BUCKETS)
        group.sample = samples.get(group.row.pk)
        group.is_back = group.row.pk in returned


def _trends(letters: DeadLetterQuerySet, span: timedelta) -> dict[str, list[int]]:
    recent = letters.filter(parked_at__gte=timezone.now() - span)
    counted = recent.values_list("fingerprint").annotate(**_spans(span))
    return {fingerprint: list(counts) for fingerprint, *counts in counted}


def _spans(span: timedelta) -> dict[str, Count]:
    began = timezone.now() - span
    edges = [began + span / BUCKETS * number for number in range(BUCKETS + 1)]
    return {
        f"span_{number}": Count("parked_at", filter=Q(parked_at__gte=start, parked_at__lt=end))
        for number, (start, end) in enumerate(pairwise(edges))
    }


def trend_of(letters: DeadLetterQuerySet, span: timedelta) -> list[int]:
    """Count what was parked in each of BUCKETS equal spans up to now."""
    return list(letters.order_by().aggregate(**_spans(span)).values())


def _samples(letters: DeadLetterQuerySet, page: list[Group]) -> dict[str, int]:
    latest = Q()
    for group in page:
        latest |= Q(fingerprint=group.row.pk, parked_at=group.last_seen)
    return dict(letters.filter(latest).values_list("fingerprint", "pk")) if page else {}


def _returned(page: list[Group], using: str) -> set[str]:
    """Return the groups that are here again after a re-drive, or after they were resolved."""
    resolved = {group.row.pk for group in page if _is_resolved_no_more(group)}
    letters = DeadLetter.objects.using(using).filter(round__gt=0).order_by()
    mine = letters.filter(fingerprint__in=[group.row.pk for group in page])
    again = mine.filter(state=DeadLetter.State.OPEN).values_list("fingerprint", flat=True)
    healed = mine.filter(state=DeadLetter.State.HEALED).values_list("fingerprint")
    first_healed = dict(healed.annotate(first=Min("closed_at")))
    after = {
        group.row.pk
        for group in page
        if (at := first_healed.get(group.row.pk)) and at < group.last_seen
    }
    return resolved | set(again.distinct()) | after


def _is_resolved_no_more(group: Group) -> bool:
    since = group.row.changed_at
    is_resolved = group.row.status == FailureGroup.Status.RESOLVED
    return bool(is_resolved and since and group.last_seen > since)


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
