"""The spans of what is written to the outbox: `create`."""

from __future__ import annotations

from django_eventbus.messages import REDRIVEN_TRACEPARENT, TRACEPARENT, Message
from django_eventbus.models import OutboxEvent
from django_eventbus.tracing import names
from django_eventbus.tracing.descriptions import (
    destination_of,
    joined,
    message_attributes,
    operation,
    row_attributes,
)
from django_eventbus.tracing.tracer import active_tracer, carried, links_to, started


def created(row: OutboxEvent) -> OutboxEvent:
    """Trace that *row* was made, and let it carry the context of that."""
    found = active_tracer()
    # A context that the caller gave is the event's own: it is neither changed nor doubled.
    if found is None or TRACEPARENT in row.headers:
        return row
    attributes = {**operation(names.CREATE), **row_attributes(row)}
    span = started(found, f"{names.CREATE} {destination_of(row)}", "PRODUCER", attributes)
    row.headers.update(carried(span))
    span.end()
    return row


def redriven(message: Message, queue: str, round_: int) -> dict[str, str]:
    """Trace that *message* goes back to *queue*; return the headers that it carries for it."""
    found = active_tracer()
    if found is None:
        # Of an earlier re-drive: it did not cause this one.
        return {REDRIVEN_TRACEPARENT: ""} if REDRIVEN_TRACEPARENT in message.headers else {}
    attributes = {
        **operation(names.CREATE),
        **message_attributes(message, joined("", queue)),
        names.QUEUE: queue,
        names.ROUND: round_,
        names.ATTEMPT: 1,
    }
    # In the trace of whoever re-drives it; the event stays in its own.
    links = list(links_to({TRACEPARENT: message.headers.get(TRACEPARENT)}))
    span = started(found, f"{names.CREATE} {queue}", "PRODUCER", attributes, links)
    span.end()
    return {REDRIVEN_TRACEPARENT: carried(span).get(TRACEPARENT, "")}
