"""Send signals and call hooks after a message was settled."""

from __future__ import annotations

import logging
from typing import Any

from django_eventbus.consumer.deliveries import ReadDelivery
from django_eventbus.dead_letters.fingerprints import last_project_line
from django_eventbus.events.event import ReceivedEvent, caused_by
from django_eventbus.events.message import Message
from django_eventbus.observability.tracing.tracer import current
from django_eventbus.signals import (
    announce,
    event_deferred,
    event_handled,
    event_parked,
    event_repeated,
    event_retried,
    event_skipped,
)
from django_eventbus.subscriptions.outcomes import Defer, Duplicate, Handled, Park, Retry, Skipped
from django_eventbus.subscriptions.subscription import Settlement, Subscription, meta_of

logger = logging.getLogger("django_eventbus.consumer")


def announce_settlement(sender: object, delivery: ReadDelivery, settlement: Settlement) -> None:
    """Send the signal of *settlement*; events that receivers publish have *delivery* as cause."""
    message = (settlement.message or delivery.message).identified()
    meta = meta_of(message, queue=delivery.queue, subscription=settlement.subscription)
    with caused_by(meta), current(settlement.span):
        _announce_outcome(sender, settlement, meta=meta, size=len(message.body))
        _call_hook(delivery, settlement)


def _announce_outcome(sender: object, settlement: Settlement, **details: Any) -> None:
    error, details = settlement.error, {**details, "seconds": settlement.seconds}
    match settlement.outcome:
        case Handled():
            announce(event_handled, sender, **details)
        case Duplicate(state=state):
            announce(event_repeated, sender, state=state, **details)
        case Skipped(reason=reason):
            announce(event_skipped, sender, reason=reason, error=error, **details)
        case Retry(delay=delay):
            announce(event_retried, sender, error=error, delay=delay, **details)
        case Defer(until=until):
            announce(event_deferred, sender, until=until, **details)
        case Park(kind=kind, reason=reason):
            announce(event_parked, sender, kind=kind, reason=reason, error=error, **details)


def _call_hook(delivery: ReadDelivery, settlement: Settlement) -> None:
    """Call on_retry or on_parked of the subscription; an error in it has no effect."""
    subscription, error = settlement.subscription, settlement.error
    if subscription is None or error is None:
        return
    hooks = {Retry: subscription.on_retry, Park: subscription.on_parked}
    hook = hooks.get(type(settlement.outcome))
    if hook is None:
        return
    try:
        message = settlement.message or delivery.message
        hook(error, settlement.event or _received(message, delivery, subscription))
    # SystemExit too: it would end the thread.
    except BaseException as failure:
        kind, place = type(failure).__name__, last_project_line(failure)
        logger.error("A hook of %s raised %s: %s", subscription.name, kind, place)


def _received(
    message: Message, delivery: ReadDelivery, subscription: Subscription
) -> ReceivedEvent:
    """Return the message as the event that a pattern subscription receives."""
    meta = meta_of(message, queue=delivery.queue, subscription=subscription)
    return ReceivedEvent(type=meta.type, payload=delivery.payload, meta=meta)
