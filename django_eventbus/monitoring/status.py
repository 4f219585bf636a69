"""Read the status of the bus from its tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.db import DEFAULT_DB_ALIAS
from django.db.models import Q, QuerySet
from django.utils import timezone

from django_eventbus.models import (
    DeadLetter,
    FailureGroup,
    Outage,
    OutboxEvent,
    Plan,
    PlannedLetter,
    Queue,
    Throughput,
    Worker,
)
from django_eventbus.monitoring.status_values import (
    COUNT_LIMIT,
    DeadLetterStatus,
    OutageStatus,
    OutboxStatus,
    PlanStatus,
    QueueStatus,
    Status,
    WorkerStatus,
    throughput_buckets,
)
from django_eventbus.redrive.plans import progress
from django_eventbus.subscriptions.subscription import registry

_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_QUARTER = timedelta(minutes=15)
#: An older measurement is not trusted.
_STALE = timedelta(minutes=1)
_OUTAGES = 10
_PLANS = 5


def read_status(now: datetime | None = None) -> Status:
    """Read the status. The broker is not asked: workers have recorded the levels of its queues."""
    now = now or timezone.now()
    minutes = Throughput.objects.using(DEFAULT_DB_ALIAS).by_minute(now - _DAY)
    return replace(
        read_counts(now),
        plans=tuple(plan for using in registry.databases() for plan in _plans(using)),
        hour=throughput_buckets(minutes, until=now, step=timedelta(minutes=1), count=60),
        day=throughput_buckets(minutes, until=now, step=_QUARTER, count=96),
    )


def read_counts(now: datetime) -> Status:
    """Read the current counts: neither throughput nor plans, which take longer to count."""
    databases = registry.databases()
    workers = _workers(now)
    return Status(
        at=now,
        outbox=_merged_outbox([read_outbox(using) for using in databases]),
        dead_letters=_merged_letters([_dead_letters(using, now) for using in databases]),
        queues=_queues(registry.queues(), workers, now),
        workers=workers,
        outages=_outages(workers, now),
    )


def open_letters_by_queue() -> Counter[str]:
    """Count the dead letters that wait for a decision, up to one above COUNT_LIMIT in each database."""
    counts: Counter[str] = Counter()
    for using in registry.databases():
        # Not grouped by the database, which would count all of them first.
        waiting = _not_ignored(using, timezone.now()).order_by()
        counts.update(waiting.values_list("queue", flat=True)[: COUNT_LIMIT + 1])
    return counts


def plans_under_way() -> Counter[tuple[str, str]]:
    """Count the plans that are under way by their action and state."""
    counts: Counter[tuple[str, str]] = Counter()
    for using in registry.databases():
        counts.update(Plan.objects.using(using).under_way().values_list("action", "state"))
    return counts


def read_queues(now: datetime | None = None) -> tuple[QueueStatus, ...]:
    """Read the queues of this project, as read_status() does, and nothing else."""
    now = now or timezone.now()
    return _queues(registry.queues(), _workers(now), now)


def capped(rows: QuerySet[Any]) -> int:
    """Count *rows*, but no further than one above COUNT_LIMIT."""
    return rows.order_by()[: COUNT_LIMIT + 1].count()


def read_outbox(using: str) -> OutboxStatus:
    """Read the outbox of the database *using*."""
    rows = OutboxEvent.objects.using(using)
    states = OutboxEvent.State
    shards = range(rows.highest_ready_shard() + 1)
    # Shard by shard, in the order of the index: over all of them the database would sort.
    heads = [rows.ready(shard).values_list("created_at", flat=True).first() for shard in shards]
    return OutboxStatus(
        ready=capped(rows.filter(state=states.READY)),
        oldest_ready_at=min((each for each in heads if each), default=None),
        scheduled=capped(rows.filter(state=states.SCHEDULED)),
        unroutable=capped(rows.filter(state=states.UNROUTABLE)),
        failed=capped(rows.filter(state=states.FAILED)),
    )


def _merged_outbox(parts: Sequence[OutboxStatus]) -> OutboxStatus:
    oldest = [part.oldest_ready_at for part in parts if part.oldest_ready_at]
    return OutboxStatus(
        ready=sum(part.ready for part in parts),
        oldest_ready_at=min(oldest, default=None),
        scheduled=sum(part.scheduled for part in parts),
        unroutable=sum(part.unroutable for part in parts),
        failed=sum(part.failed for part in parts),
    )


def _dead_letters(using: str, now: datetime) -> DeadLetterStatus:
    rows = DeadLetter.objects.using(using)
    waiting = _not_ignored(using, now)
    return DeadLetterStatus(
        open=capped(waiting),
        new_in_hour=capped(waiting.filter(parked_at__gte=now - _HOUR)),
        new_in_day=capped(waiting.filter(parked_at__gte=now - _DAY)),
        redriving=capped(rows.filter(state=DeadLetter.State.REDRIVING)),
        ignored=_ignored(using, now),
    )


def _not_ignored(using: str, now: datetime) -> QuerySet[DeadLetter]:
    """Return the waiting dead letters, except those that are ignored for now or whose group is."""
    waiting = DeadLetter.objects.using(using).redrivable().filter(_is_not_ignored(now))
    return waiting.exclude(fingerprint__in=_ignored_groups(using, now))


def _ignored(using: str, now: datetime) -> int:
    # Two queries, each with an index: for "or" the database would read every row.
    waiting = DeadLetter.objects.using(using).redrivable()
    in_groups = waiting.filter(_is_not_ignored(now), fingerprint__in=_ignored_groups(using, now))
    return capped(waiting.filter(ignored_until__gt=now)) + capped(in_groups)


def _is_not_ignored(now: datetime) -> Q:
    return Q(ignored_until=None) | Q(ignored_until__lte=now)


def _ignored_groups(using: str, now: datetime) -> list[str]:
    groups = FailureGroup.objects.using(using)
    ignored = groups.filter(status=FailureGroup.Status.IGNORED, ignored_until__gt=now)
    return list(ignored.values_list("pk", flat=True))


def _merged_letters(parts: Sequence[DeadLetterStatus]) -> DeadLetterStatus:
    return DeadLetterStatus(
        open=sum(part.open for part in parts),
        new_in_hour=sum(part.new_in_hour for part in parts),
        new_in_day=sum(part.new_in_day for part in parts),
        redriving=sum(part.redriving for part in parts),
        ignored=sum(part.ignored for part in parts),
    )


def _workers(now: datetime) -> tuple[WorkerStatus, ...]:
    """Return the live workers, and those that fell silent in the last hour."""
    rows = Worker.objects.using(DEFAULT_DB_ALIAS).filter(seen_at__gte=now - _HOUR)
    return tuple(
        WorkerStatus(
            id=str(row.pk),
            kind=row.kind,
            host=row.host,
            pid=row.pid,
            version=row.version,
            queues=tuple(row.queues),
            started_at=row.started_at,
            seen_at=row.seen_at,
            is_live=row.is_live(now),
            is_stopping=row.is_stopping,
            outage=row.outage,
            outage_since=row.outage_since,
        )
        for row in rows.order_by("id")
    )


def _queues(
    names: Iterable[str], workers: Sequence[WorkerStatus], now: datetime
) -> tuple[QueueStatus, ...]:
    rows = {row.name: row for row in Queue.objects.using(DEFAULT_DB_ALIAS).all()}
    live = [each for each in workers if each.is_live]
    return tuple(_queue(name, rows.get(name), live, now) for name in names)


def _queue(
    name: str, row: Queue | None, live: Sequence[WorkerStatus], now: datetime
) -> QueueStatus:
    ours = sum(name in each.queues for each in live)
    if row is None or row.measured_at is None:
        return QueueStatus(name=name, consumers=ours, trouble=row.trouble if row else "")
    is_fresh = row.measured_at >= now - _STALE
    return QueueStatus(
        name=name,
        is_measured=is_fresh and row.messages is not None,
        messages=row.messages,
        consumers=max(ours, row.consumers or 0) if is_fresh else ours,
        in_tiers=row.in_tiers,
        dlq=row.dlq,
        dlq_messages=row.dlq_messages,
        is_collected=row.is_collected,
        measured_at=row.measured_at,
        trouble=row.trouble,
    )


def _outages(workers: Sequence[WorkerStatus], now: datetime) -> tuple[OutageStatus, ...]:
    live = {each.id for each in workers if each.is_live}
    rows = Outage.objects.using(DEFAULT_DB_ALIAS).filter(began_at__gte=now - _DAY)
    return tuple(
        OutageStatus(
            kind=row.kind,
            part=row.part,
            host=row.host,
            began_at=row.began_at,
            ended_at=row.ended_at,
            is_lasting=row.ended_at is None and str(row.worker_id) in live,
        )
        for row in rows.order_by("-began_at")[:_OUTAGES]
    )


def _plans(using: str) -> Iterator[PlanStatus]:
    for plan in Plan.objects.using(using).under_way().order_by("-id")[:_PLANS]:
        counts = progress(plan)
        unsettled = sum(counts.get(state, 0) for state in PlannedLetter.UNSETTLED)
        total = sum(counts.values())
        yield PlanStatus(
            id=plan.pk,
            action=plan.action,
            state=plan.state,
            by=plan.created_by,
            note=plan.note_text,
            total=total,
            settled=total - unsettled,
            queues=tuple(plan.queues),
        )
