"""Failure groups, and decisions about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

from django.db import transaction
from django.db.models import Count, Max, Min, Q
from django.utils import timezone

from django_eventbus.dead_letters import audit
from django_eventbus.dead_letters.query import matching
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.models import DeadLetter, FailureGroup
from django_eventbus.models.dead_letters import DeadLetterQuerySet

BUCKETS = 24
#: Kinds that are not failures of a handler. Their groups are shown separately.
SEPARATE_KINDS: dict[str, tuple[str, ...]] = {
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
_ALL_SEPARATE_KINDS = tuple(kind for kinds in SEPARATE_KINDS.values() for kind in kinds)


@dataclass(slots=True, kw_only=True)
class Group:
    """A failure group with figures about its dead letters."""

    row: FailureGroup
    #: The number of dead letters that wait.
    count: int
    #: When the latest of them was parked.
    latest: datetime | None
    status: str
    #: When the latest dead letter in any state was parked.
    last_seen: datetime | None = None
    #: Whether the failure happened again after a re-drive or after the group was resolved.
    is_back: bool = False
    #: The id of the latest dead letter that waits.
    sample: int | None = None
    #: The new dead letters in each of BUCKETS equal spans, in any state, the oldest span first.
    trend: list[int] = field(default_factory=list)

    @property
    def first_seen(self) -> datetime:
        return self.row.created_at

    @property
    def selection(self) -> Selection:
        return Selection.of([("group", self.row.fingerprint)])


def groups(
    selection: Selection, *, using: str, limit: int = 50, offset: int = 0, span: timedelta
) -> tuple[list[Group], int]:
    """Return a page of the groups in *selection*, the largest first, and the number of groups."""
    counts = _counts(matching(selection, using))
    rows = FailureGroup.objects.using(using)
    separate = set(rows.filter(kind__in=_ALL_SEPARATE_KINDS).values_list("pk", flat=True))
    largest = sorted(counts.keys() - separate, key=lambda key: (-counts[key][0], key))
    keys, now = largest[offset : offset + limit], timezone.now()
    # Only the rows of this page: the table also keeps all groups in which nothing waits.
    shown = rows.in_bulk(keys)
    page = [_group(shown[key], counts[key], now) for key in keys if key in shown]
    _add_details(page, selection, using, span)
    return page, len(largest)


def group_of(row: FailureGroup, selection: Selection, *, using: str, span: timedelta) -> Group:
    """Return the group of *row*, limited to *selection*. It may have no dead letter that waits."""
    counts = _counts(matching(selection, using).filter(fingerprint=row.pk))
    group = _group(row, counts.get(row.pk, (0, None)), timezone.now())
    _add_details([group], selection, using, span)
    return group


def buckets(selection: Selection, *, using: str) -> dict[str, int]:
    """Count what waits outside the groups: undecodable, unmatched, or from the broker."""
    kinds = dict(
        FailureGroup.objects.using(using)
        .filter(kind__in=_ALL_SEPARATE_KINDS)
        .values_list("pk", "kind")
    )
    counts = _counts(matching(selection, using).filter(fingerprint__in=list(kinds)))
    return {
        name: sum(count for pk, (count, _) in counts.items() if kinds[pk] in of)
        for name, of in SEPARATE_KINDS.items()
    }


def queues_of(fingerprint: str, using: str) -> list[str]:
    """Return the queues of the group's dead letters in any state."""
    mine = DeadLetter.objects.using(using).filter(fingerprint=fingerprint).order_by()
    return sorted(mine.values_list("queue", flat=True).distinct())


def _counts(letters: DeadLetterQuerySet) -> dict[str, tuple[int, datetime | None]]:
    # Count("*"), not Count("pk"): the index of the groups has no pk, so the rows would be read.
    waiting = letters.filter(state__in=DeadLetter.WAITING).order_by().values_list("fingerprint")
    counted = waiting.annotate(count=Count("*"), latest=Max("parked_at"))
    return {fingerprint: (count, latest) for fingerprint, count, latest in counted}


def _group(row: FailureGroup, figures: tuple[int, datetime | None], now: datetime) -> Group:
    count, latest = figures
    return Group(row=row, count=count, latest=latest, status=row.status_at(now))


def _add_details(page: list[Group], selection: Selection, using: str, span: timedelta) -> None:
    """Add the other figures of each group, with one query for all groups."""
    keys = [group.row.pk for group in page]
    waiting = matching(selection, using).filter(state__in=DeadLetter.WAITING).order_by()
    # In every state: otherwise healed dead letters would disappear from the plot of their incident.
    ever = matching(selection.without("state"), using).filter(fingerprint__in=keys).order_by()
    trends, samples = _trends(ever, span), _samples(waiting, page)
    closed = ever.filter(state__in=DeadLetter.CLOSED).values_list("fingerprint")
    last_closed = dict(closed.annotate(last=Max("parked_at")))
    returned = _returned(page, using)
    for group in page:
        key = group.row.pk
        group.trend = trends.get(key, [0] * BUCKETS)
        group.sample = samples.get(key)
        seen = [each for each in (group.latest, last_closed.get(key)) if each]
        group.last_seen = max(seen, default=None)
        group.is_back = key in returned


def _trends(letters: DeadLetterQuerySet, span: timedelta) -> dict[str, list[int]]:
    # By created_at, because a failed re-drive changes parked_at.
    recent = letters.filter(created_at__gte=timezone.now() - span)
    counted = recent.values_list("fingerprint").annotate(**_spans("created_at", span))
    return {fingerprint: list(counts) for fingerprint, *counts in counted}


def _spans(column: str, span: timedelta) -> dict[str, Count]:
    began = timezone.now() - span
    edges = [began + span / BUCKETS * number for number in range(BUCKETS + 1)]
    return {
        f"span_{number}": Count(column, filter=Q((f"{column}__gte", start), (f"{column}__lt", end)))
        for number, (start, end) in enumerate(pairwise(edges))
    }


def trend_of(letters: DeadLetterQuerySet, span: timedelta) -> list[int]:
    """Count the dead letters that were parked in each of BUCKETS equal spans until now."""
    return list(letters.order_by().aggregate(**_spans("parked_at", span)).values())


def _samples(letters: DeadLetterQuerySet, page: list[Group]) -> dict[str, int]:
    latest = Q()
    for group in page:
        if group.latest:
            latest |= Q(fingerprint=group.row.pk, parked_at=group.latest)
    return dict(letters.filter(latest).values_list("fingerprint", "pk")) if latest else {}


def _returned(page: list[Group], using: str) -> set[str]:
    """Return the groups that failed again after a re-drive, or after they were resolved."""
    resolved = {group.row.pk for group in page if _failed_after_resolved(group)}
    letters = DeadLetter.objects.using(using).filter(round__gt=0).order_by()
    mine = letters.filter(fingerprint__in=[group.row.pk for group in page])
    again = mine.filter(state=DeadLetter.State.OPEN).values_list("fingerprint", flat=True)
    healed = mine.filter(state=DeadLetter.State.HEALED).values_list("fingerprint")
    first_healed = dict(healed.annotate(first=Min("closed_at")))
    after = {
        group.row.pk
        for group in page
        if (at := first_healed.get(group.row.pk)) and group.latest and at < group.latest
    }
    return resolved | set(again.distinct()) | after


def _failed_after_resolved(group: Group) -> bool:
    since = group.row.changed_at
    is_resolved = group.row.status == FailureGroup.Status.RESOLVED
    return bool(is_resolved and since and group.latest and group.latest > since)


def record_decision(
    fingerprint: str,
    verb: str,
    *,
    by: str,
    using: str,
    note: str = "",
    until: datetime | None = None,
) -> FailureGroup:
    """Acknowledge, ignore (*until*), resolve or reopen a group, and record it in the audit."""
    with transaction.atomic(using=using):
        group = FailureGroup.objects.using(using).select_for_update().get(pk=fingerprint)
        if verb == "ignore":
            if until is None:
                raise ValueError("until is required to ignore a group")
            group.ignore(until, by, note)
        else:
            _DECISIONS[verb](group, by, note)
        audit.record(
            f"{verb} group",
            by=by,
            why=note,
            selection=f"group={fingerprint}",
            using=using,
            outcome={"until": until.isoformat()} if until else {},
        )
    return group


_DECISIONS = {
    "acknowledge": FailureGroup.acknowledge,
    "resolve": FailureGroup.resolve,
    "reopen": FailureGroup.reopen,
}
