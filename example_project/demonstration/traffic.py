"""What is on its way, by the tables of the event bus."""

from __future__ import annotations

from collections.abc import Iterable

from django_eventbus import registry
from django_eventbus.models import DeadLetter, InboxRecord, OutboxEvent

SETTLED = (InboxRecord.State.HANDLED, InboxRecord.State.SKIPPED, InboxRecord.State.PARKED)

#: A subscription and a message that it takes.
Errand = tuple[str, str]


def is_quiet() -> bool:
    """Tell whether all that was published is settled by everyone it is for."""
    # First what is written last: what a handler publishes is committed with its record.
    records = InboxRecord.objects.filter(state__in=SETTLED)
    settled = set(records.values_list("subscription", "message_id"))
    is_redriving = DeadLetter.objects.filter(state=DeadLetter.State.REDRIVING).exists()
    rows = list(OutboxEvent.objects.all())
    is_sent = all(row.state == OutboxEvent.State.PUBLISHED for row in rows)
    return is_sent and not is_redriving and errands(rows) <= settled


def errands(rows: Iterable[OutboxEvent]) -> set[Errand]:
    """Return what *rows* lead to; a row for one queue only repeats what another has led to."""
    return {
        (subscription.name, row.message_id)
        for row in rows
        if not row.queue
        for subscription in registry
        if subscription.matches(row.message())
    }
