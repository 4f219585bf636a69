"""Deliver a single event to its handlers in a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from django_eventbus.events.event import Command, Event, ReceivedEvent
from django_eventbus.events.message import SUBSCRIPTION, Message
from django_eventbus.events.routing import COMMANDS, EVENTS, Route, matches
from django_eventbus.outbox.outbox_rows import message_for, sending_options
from django_eventbus.subscriptions.outcomes import Outcome
from django_eventbus.subscriptions.subscription import Settlement, Subscription, registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The settlements of the messages that were delivered."""

    settlements: tuple[Settlement, ...]

    @property
    def outcomes(self) -> list[Outcome]:
        """The outcome of each message for each subscription, in order."""
        return [each.outcome for each in self.settlements]

    @property
    def errors(self) -> list[BaseException]:
        """The errors that handlers raised."""
        return [each.error for each in self.settlements if each.error]

    def by(self, subscription: str | Callable[..., object]) -> list[Outcome]:
        """Return the outcomes of one subscription, given by its name or its handler."""
        wanted = subscription_of(subscription)
        return [each.outcome for each in self.settlements if each.subscription == wanted]


@dataclass(slots=True)
class TestDelivery:
    """A delivery without a broker."""

    message: Message
    queue: str
    is_redelivered: bool = False

    def ack(self) -> None:
        """Nothing to settle."""

    def release(self, after: float = 0) -> None:
        """Nothing to return."""


def subscription_of(given: str | Callable[..., object]) -> Subscription:
    """Return the subscription of that name or with that handler."""
    found = next((each for each in registry if given in (each.name, each.handler)), None)
    if found is None:
        known = ", ".join(sorted(each.name for each in registry)) or "none"
        raise LookupError(f"There is no subscription {given!r}. The subscriptions are {known}.")
    return found


def message_of(
    event: Event | ReceivedEvent | str,
    payload: Any,
    *,
    key: object,
    headers: Mapping[str, Any] | None,
    debug: bool,
) -> Message:
    """Return the message of *event*, with its own id if it was published before."""
    given = (event.type, event.payload) if isinstance(event, ReceivedEvent) else event
    publication = (given, payload) if isinstance(given, str) else given
    sending = sending_options(_route_of(event), None, None, headers, "", debug)
    message = message_for(publication, key=key, sending=sending)
    meta = getattr(event, "meta", None)
    return replace(message, id=meta.id) if meta else message


def _route_of(event: Event | ReceivedEvent | str) -> Route:
    """Return COMMANDS if *event* is a command or this project handles it as one, else EVENTS."""
    if isinstance(event, Event):
        return COMMANDS if isinstance(event, Command) else EVENTS
    name = event if isinstance(event, str) else event.type
    commands = (each.pattern for each in registry if each.route is COMMANDS)
    return COMMANDS if any(matches(pattern, name) for pattern in commands) else EVENTS


def test_deliveries(
    message: Message, subscription: str | Callable[..., object]
) -> Iterator[TestDelivery]:
    """Yield a delivery for each queue that receives *message*, or for that of *subscription*."""
    if subscription:
        wanted = subscription_of(subscription)
        copy = message.copy_for(wanted.queue, **{SUBSCRIPTION: wanted.record_name})
        yield TestDelivery(copy, wanted.queue)
        return
    queues = [each for each in registry.queues() if _is_bound(each, message)]
    if not queues:
        raise LookupError(f"No subscription matches {message.type!r}.")
    for queue in queues:
        yield TestDelivery(message, queue)


def _is_bound(queue: str, message: Message) -> bool:
    """Whether a broker would send *message* to *queue*."""
    receivers = registry.receivers(queue, message)
    return any(each.came_through_exchange(message) for each in receivers)
