"""The spans of an event: create, publish and process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from django_eventbus.conf import conf
from django_eventbus.events.message import REDRIVEN_TRACEPARENT, TRACEPARENT, Message
from django_eventbus.exceptions import Busy
from django_eventbus.models import OutboxEvent
from django_eventbus.observability.tracing import attributes
from django_eventbus.observability.tracing.attributes import (
    destination_of,
    error_type,
    exception_attributes,
    joined,
    message_attributes,
    operation,
    row_attributes,
)
from django_eventbus.observability.tracing.tracer import (
    active_tracer,
    carried,
    current,
    failed,
    link_to_current,
    links_to,
    started,
)
from django_eventbus.subscriptions.outcomes import (
    Defer,
    Duplicate,
    Handled,
    Outcome,
    Park,
    Retry,
    Skipped,
)
from django_eventbus.subscriptions.subscription import Arrival, Settlement, Subscription
from django_eventbus.transports.contract import (
    Receipt,
    Refused,
    Rejected,
    Unroutable,
)

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span, Tracer

#: The names of outcomes.
OUTCOMES: dict[type[Outcome], str] = {
    Handled: "handled",
    Duplicate: "repeated",
    Skipped: "skipped",
    Retry: "retried",
    Defer: "deferred",
    Park: "parked",
}
#: The name of the outcome if the delivery was returned and the handler was rolled back.
RETURNED = "returned"
#: The maximum number of links and of events of a span. By default, an SDK keeps no more.
LINK_LIMIT = 128
#: The names of receipts, the worst first.
_PROBLEMS: dict[type[Receipt], str] = {
    Rejected: "rejected",
    Refused: "refused",
    Unroutable: "unroutable",
}


def created(row: OutboxEvent) -> OutboxEvent:
    """Trace the creation of *row*, and add the trace context to its headers."""
    found = active_tracer()
    # If the caller gave a context, keep it and create no span.
    if found is None or TRACEPARENT in row.headers:
        return row
    values = {**operation(attributes.CREATE), **row_attributes(row)}
    span = started(found, f"{attributes.CREATE} {destination_of(row)}", "PRODUCER", values)
    row.headers.update(carried(span))
    span.end()
    return row


def redriven(message: Message, queue: str, round_: int) -> dict[str, str]:
    """Trace the re-drive of *message* to *queue*; return the headers with the trace context."""
    found = active_tracer()
    if found is None:
        # Remove the context of an earlier re-drive, which did not cause this one.
        return {REDRIVEN_TRACEPARENT: ""} if REDRIVEN_TRACEPARENT in message.headers else {}
    values = {
        **operation(attributes.CREATE),
        **message_attributes(message, joined("", queue)),
        attributes.QUEUE: queue,
        attributes.ROUND: round_,
        attributes.ATTEMPT: 1,
    }
    # The span belongs to the trace of the person or plan that re-drives. The event keeps its trace.
    links = list(links_to({TRACEPARENT: message.headers.get(TRACEPARENT)}))
    span = started(found, f"{attributes.CREATE} {queue}", "PRODUCER", values, links)
    span.end()
    return {REDRIVEN_TRACEPARENT: carried(span).get(TRACEPARENT, "")}


class ProcessSpan:
    """The span of one message in one subscription; without a tracer it does nothing."""

    def __init__(self, span: Span | None) -> None:
        self.span = span

    def settled(self, settlement: Settlement) -> Settlement:
        """Describe the outcome in the span; return the settlement with the span."""
        if self.span is None:
            return settlement
        _describe_settlement(self.span, settlement)
        return replace(settlement, span=self.span)


@contextmanager
def process_span(subscription: Subscription, arrival: Arrival) -> Iterator[ProcessSpan]:
    """Let the message be the current span inside the block."""
    found = active_tracer()
    if found is None:
        yield ProcessSpan(None)
        return
    span = _start_process(found, subscription, arrival)
    try:
        with current(span):
            yield ProcessSpan(span)
    except BaseException as error:
        _describe_return(span, error)
        raise
    finally:
        span.end()


def _start_process(tracer: Tracer, subscription: Subscription, arrival: Arrival) -> Span:
    message = arrival.message
    destination = joined(message.first_exchange, message.first_routing_key, arrival.queue)
    values = {
        **operation(attributes.PROCESS),
        **message_attributes(message, destination),
        attributes.QUEUE: arrival.queue,
        attributes.SUBSCRIPTION: subscription.name,
    }
    links = [*links_to(message.headers), *link_to_current()]
    name = f"{attributes.PROCESS} {destination}"
    return started(tracer, name, "CONSUMER", values, links, within=message.headers)


def _describe_settlement(span: Span, settlement: Settlement) -> None:
    outcome, error = settlement.outcome, settlement.error
    span.set_attribute(attributes.OUTCOME, OUTCOMES[type(outcome)])
    if settlement.message:
        # An ordered subscription retries the same delivery, so the attempt differs.
        span.set_attribute(attributes.ATTEMPT, settlement.message.attempt)
    if isinstance(outcome, Park):
        span.set_attribute(attributes.KIND, outcome.kind)
    if error:
        span.add_event(attributes.EXCEPTION, exception_attributes(error))
    if error and isinstance(outcome, Retry | Park):
        span.set_attribute(attributes.ERROR_TYPE, error_type(error))
        failed(span, error_type(error))


def _describe_return(span: Span, error: BaseException) -> None:
    span.set_attribute(attributes.OUTCOME, RETURNED)
    # Busy is not a failure: another worker is handling the message.
    if not isinstance(error, Busy):
        span.set_attribute(attributes.ERROR_TYPE, error_type(error))
        failed(span, error_type(error))


class PublishSpan:
    """The span of a batch; without a tracer it does nothing."""

    def __init__(self, span: Span | None) -> None:
        self.span = span

    def received(self, rows: Sequence[OutboxEvent], receipts: Sequence[Receipt]) -> None:
        """Add the messages that the broker did not accept to the span."""
        if self.span:
            _describe_receipts(self.span, rows, receipts)


@contextmanager
def publish_span(rows: Sequence[OutboxEvent]) -> Iterator[PublishSpan]:
    """Trace the block, which sends *rows* and waits for all their receipts."""
    found = active_tracer()
    if found is None:
        yield PublishSpan(None)
        return
    span = _start_publish(found, rows)
    try:
        yield PublishSpan(span)
    except BaseException as error:
        span.set_attribute(attributes.ERROR_TYPE, error_type(error))
        failed(span, error_type(error))
        raise
    finally:
        span.end()


def _start_publish(tracer: Tracer, rows: Sequence[OutboxEvent]) -> Span:
    destinations = {destination_of(row) for row in rows}
    values: dict[str, Any] = {**operation(attributes.PUBLISH), attributes.MESSAGE_COUNT: len(rows)}
    name = attributes.PUBLISH
    if len(destinations) == 1:
        (values[attributes.DESTINATION],) = destinations
        name = f"{attributes.PUBLISH} {values[attributes.DESTINATION]}"
    return started(tracer, name, "CLIENT", values, list(islice(_links(rows), LINK_LIMIT)))


def _links(rows: Sequence[OutboxEvent]) -> Iterator[Link]:
    for row in rows:
        yield from links_to(row.headers, {attributes.MESSAGE_ID: row.message_id})


def _describe_receipts(
    span: Span, rows: Sequence[OutboxEvent], receipts: Sequence[Receipt]
) -> None:
    pairs = zip(rows, receipts, strict=True)
    not_accepted = [(row, problem) for row, receipt in pairs if (problem := _problem(row, receipt))]
    if not not_accepted:
        return
    span.set_attribute(attributes.NOT_TAKEN, len(not_accepted))
    for row, problem in not_accepted[:LINK_LIMIT]:
        span.add_event(
            problem, {attributes.MESSAGE_ID: row.message_id, attributes.EVENT_TYPE: row.type}
        )
    worst = min((problem for _, problem in not_accepted), key=list(_PROBLEMS.values()).index)
    span.set_attribute(attributes.ERROR_TYPE, worst)
    failed(span, worst)


def _problem(row: OutboxEvent, receipt: Receipt) -> str:
    if isinstance(receipt, Unroutable) and conf.unroutable == "ignore" and not row.is_addressed:
        return ""
    return _PROBLEMS.get(type(receipt), "")
