"""The span of a message on its way through one subscription: `process`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from django_eventbus.exceptions import Busy
from django_eventbus.outcomes import Defer, Duplicate, Handled, Outcome, Park, Retry, Skipped
from django_eventbus.settlements import Arrival, Settlement
from django_eventbus.subscriptions import Subscription
from django_eventbus.tracing import names
from django_eventbus.tracing.descriptions import (
    error_type,
    exception_attributes,
    joined,
    message_attributes,
    operation,
)
from django_eventbus.tracing.tracer import (
    active_tracer,
    current,
    failed,
    link_to_current,
    links_to,
    started,
)

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

#: What an outcome is called.
OUTCOMES: dict[type[Outcome], str] = {
    Handled: "handled",
    Duplicate: "repeated",
    Skipped: "skipped",
    Retry: "retried",
    Defer: "deferred",
    Park: "parked",
}
#: The delivery went back to the broker, and the handler's effects were undone.
RETURNED = "returned"


def traced(
    handle: Callable[[Subscription, Arrival], Settlement],
    subscription: Subscription,
    arrival: Arrival,
) -> Settlement:
    """Return what *handle* makes of the message, which is the current span meanwhile."""
    found = active_tracer()
    if found is None:
        return handle(subscription, arrival)
    span = _started(found, subscription, arrival)
    try:
        with current(span):
            settlement = handle(subscription, arrival)
        _tell(span, settlement)
    except BaseException as error:
        _tell_return(span, error)
        raise
    finally:
        span.end()
    return replace(settlement, span=span)


def _started(tracer: Tracer, subscription: Subscription, arrival: Arrival) -> Span:
    message = arrival.message
    destination = joined(message.first_exchange, message.first_routing_key, arrival.queue)
    attributes = {
        **operation(names.PROCESS),
        **message_attributes(message, destination),
        names.QUEUE: arrival.queue,
        names.SUBSCRIPTION: subscription.name,
    }
    links = [*links_to(message.headers), *link_to_current()]
    name = f"{names.PROCESS} {destination}"
    return started(tracer, name, "CONSUMER", attributes, links, within=message.headers)


def _tell(span: Span, settlement: Settlement) -> None:
    outcome, error = settlement.outcome, settlement.error
    span.set_attribute(names.OUTCOME, OUTCOMES[type(outcome)])
    if settlement.message:
        # Of an ordered subscription, which tries the same delivery again and again.
        span.set_attribute(names.ATTEMPT, settlement.message.attempt)
    if isinstance(outcome, Park):
        span.set_attribute(names.KIND, outcome.kind)
    if error:
        span.add_event(names.EXCEPTION, exception_attributes(error))
    if error and isinstance(outcome, Retry | Park):
        span.set_attribute(names.ERROR_TYPE, error_type(error))
        failed(span, error_type(error))


def _tell_return(span: Span, error: BaseException) -> None:
    span.set_attribute(names.OUTCOME, RETURNED)
    # Busy is no failure: another worker has the message.
    if not isinstance(error, Busy):
        span.set_attribute(names.ERROR_TYPE, error_type(error))
        failed(span, error_type(error))
