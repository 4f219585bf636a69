"""Find out from the tables of the event bus whether messages are on their way."""

from __future__ import annotations

from collections.abc import Iterable

from django_eventbus import registry
from django_eventbus.models import DeadLetter, InboxRecord, OutboxEvent

SETTLED = (InboxRecord.State.HANDLED, InboxRecord.State.SKIPPED, InboxRecord.State.PARKED)

#: A subscription and a message that it receives.
Errand = tuple[str, str]


def is_quiet() -> bool:
    """Return whether all published messages are settled by all their subscriptions."""
    # Read the records first: events that a handler publishes are committed with its record.
    records = InboxRecord.objects.filter(state__in=SETTLED)
    settled = set(records.values_list("subscription", "message_id"))
    is_redriving = DeadLetter.objects.filter(state=DeadLetter.State.REDRIVING).exists()
    rows = list(OutboxEvent.objects.all())
    is_sent = all(row.state == OutboxEvent.State.PUBLISHED for row in rows)
    return is_sent and not is_redriving and errands(rows) <= settled


def errands(rows: Iterable[OutboxEvent]) -> set[Errand]:
    """Return the errands of *rows*. An addressed row only repeats those of another row."""
    return {
        (subscription.name, row.message_id)
        for row in rows
        if not row.queue
        for subscription in registry
        if subscription.matches(row.message())
    }
