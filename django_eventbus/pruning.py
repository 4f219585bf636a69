"""Remove old settled rows in small batches, and record the cutoff."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet

from django_eventbus.models import (
    Attempt,
    BrokerRequest,
    DeadLetter,
    InboxMark,
    InboxRecord,
    Outage,
    OutboxEvent,
    Plan,
    PlannedLetter,
    Queue,
    Throughput,
    Worker,
)

_BATCH = 500
#: Seconds; younger messages may still be in use.
SHORTEST_AGE = 60


def prune(cutoff: datetime, *, using: str, batch: int = _BATCH) -> dict[str, int]:
    """Remove settled rows older than *cutoff*; return how many of each kind."""
    # The mark first: a copy of a message without a record must meet the mark, not run again.
    InboxMark.objects.using(using).advance(cutoff)
    sys.audit("eventbus.pruning.marked")
    return {name: _delete(rows, batch) for name, rows in _prunable(cutoff, using)}


def count_prunable(cutoff: datetime, *, using: str) -> dict[str, int]:
    """Return how many rows prune() would remove now."""
    return {name: rows.count() for name, rows in _prunable(cutoff, using)}


def _prunable(cutoff: datetime, using: str) -> Iterator[tuple[str, QuerySet[Any]]]:
    """Yield the rows that can be removed, in a safe order."""
    yield "outbox events", _outbox(cutoff, using)
    yield "dead letters", _dead_letters(cutoff, using)
    yield "inbox records", _inbox(cutoff, using)
    yield "attempts", _attempts(cutoff, using)
    # Before their plans: a plan may have a million rows, and its deletion cascades.
    plans = _plans(cutoff, using)
    yield "planned letters", PlannedLetter.objects.using(using).filter(plan__in=plans)
    yield "plans", plans
    yield "workers", Worker.objects.using(using).filter(seen_at__lt=cutoff)
    yield "minutes of throughput", Throughput.objects.using(using).filter(minute__lt=cutoff)
    yield "outages", Outage.objects.using(using).filter(began_at__lt=cutoff)
    ended = (BrokerRequest.State.DONE, BrokerRequest.State.FAILED)
    yield (
        "broker requests",
        BrokerRequest.objects.using(using).filter(state__in=ended, ended_at__lt=cutoff),
    )
    # Only queues without a subscription: the others are measured every few seconds.
    yield "queues", Queue.objects.using(using).filter(measured_at__lt=cutoff)


def _outbox(cutoff: datetime, using: str) -> QuerySet[OutboxEvent]:
    published = Q(state=OutboxEvent.State.PUBLISHED, published_at__lt=cutoff)
    cancelled = Q(state=OutboxEvent.State.CANCELLED, created_at__lt=cutoff)
    return OutboxEvent.objects.using(using).filter(published | cancelled)


def _dead_letters(cutoff: datetime, using: str) -> QuerySet[DeadLetter]:
    closed = DeadLetter.CLOSED
    return DeadLetter.objects.using(using).filter(state__in=closed, closed_at__lt=cutoff)


def _plans(cutoff: datetime, using: str) -> QuerySet[Plan]:
    ended = Q(ended_at__lt=cutoff)
    never_started = Q(state=Plan.State.PLANNED, created_at__lt=cutoff)
    return Plan.objects.using(using).filter(ended | never_started)


def _inbox(cutoff: datetime, using: str) -> QuerySet[InboxRecord]:
    # Without the rows that prune() removes before, so that a dry run counts the same.
    kept_letters = (
        DeadLetter.objects.using(using)
        .exclude(pk__in=_dead_letters(cutoff, using).values("pk"))
        .filter(subscription=OuterRef("subscription"), message_id=OuterRef("message_id"))
    )
    settled = (InboxRecord.State.HANDLED, InboxRecord.State.SKIPPED, InboxRecord.State.PARKED)
    # By both times: a producer may have a clock that is ahead.
    sent_before = Q(sent_at__isnull=True) | Q(sent_at__lt=cutoff)
    return (
        InboxRecord.objects.using(using)
        .filter(sent_before, state__in=settled, settled_at__lt=cutoff)
        .exclude(Exists(kept_letters))
    )


def _attempts(cutoff: datetime, using: str) -> QuerySet[Attempt]:
    remembered = (
        InboxRecord.objects.using(using)
        .exclude(pk__in=_inbox(cutoff, using).values("pk"))
        .filter(subscription=OuterRef("subscription"), message_id=OuterRef("message_id"))
    )
    old = Attempt.objects.using(using).filter(started_at__lt=cutoff)
    return old.exclude(Exists(remembered))


def _delete(rows: QuerySet[Any], batch: int) -> int:
    deleted = 0
    while ids := list(rows.order_by("pk").values_list("pk", flat=True)[:batch]):
        # With the condition again: a row may have changed since it was listed.
        count = rows.filter(pk__in=ids).delete()[0]
        if not count:
            break
        deleted += count
        sys.audit("eventbus.pruning.deleted")
    return deleted
