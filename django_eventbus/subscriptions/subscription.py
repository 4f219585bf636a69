"""Subscriptions, their registry, and settlements."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from django.db import DEFAULT_DB_ALIAS

from django_eventbus.conf import conf
from django_eventbus.events.event import Event, Meta, ReceivedEvent
from django_eventbus.events.message import CAUSATION, KEY, Message
from django_eventbus.events.routing import COMMANDS, EVENTS, Route, exchange_of, matches
from django_eventbus.subscriptions.outcomes import Outcome
from django_eventbus.subscriptions.retries import Errors, RetryPolicy

Handler = Callable[[Any], object]
#: Called with the error and the event after an outcome is recorded.
Hook = Callable[[BaseException, Any], object]


def raise_if_unfinished(returned: object) -> None:
    """Raise TypeError if the handler returned a coroutine, a generator or an exception."""
    if inspect.isawaitable(returned) or inspect.isgenerator(returned):
        if inspect.iscoroutine(returned):
            returned.close()
        raise TypeError("the handler returned a coroutine or a generator, which is never run")
    if isinstance(returned, BaseException):
        raise TypeError(f"the handler returned {type(returned).__name__} instead of raising it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A handler for a pattern on a queue. Its records are stored under its name."""

    name: str
    handler: Handler
    pattern: str
    event_class: type[Event] | None = None
    route: Route = EVENTS
    queue_name: str = ""
    aliases: tuple[str, ...] = ()
    delays: tuple[float, ...] | None = None
    tries: int | None = None
    retry_on: Errors = ()
    park_on: Errors = ()
    skip_on: Errors = ()
    retry_for: float | None = None
    retry_client_errors: bool = False
    timeout: float | None = None
    on_retry: Hook | None = None
    on_parked: Hook | None = None
    debug_handler: Handler | None = None
    ordered: bool = False
    hold_key: bool | None = None
    atomic: bool = True
    using: str = DEFAULT_DB_ALIAS

    @property
    def queue(self) -> str:
        return conf.queue(self.queue_name)

    @property
    def record_name(self) -> str:
        """The oldest name of the subscription, which all records use."""
        # It must not change: during a deploy, old and new processes share the records.
        return self.aliases[-1] if self.aliases else self.name

    @property
    def policy(self) -> RetryPolicy:
        """The retry policy of the subscription, with defaults from the settings."""
        fallback = default_policy()
        if self.delays is not None:
            fallback = replace(fallback, delays=self.delays, tries=len(self.delays) + 1)
        return replace(
            fallback,
            tries=self.tries or fallback.tries,
            retry_on=self.retry_on,
            park_on=self.park_on,
            skip_on=self.skip_on,
            retry_for=self._budget,
            retry_client_errors=self.retry_client_errors,
        )

    @property
    def holds_keys(self) -> bool:
        """Whether later events of a key wait while an event of the key is parked."""
        return self.ordered and (conf.hold_keys if self.hold_key is None else self.hold_key)

    @property
    def _budget(self) -> float | None:
        # An ordered message blocks its queue while it is retried.
        limits = (self.retry_for, conf.ordered_block) if self.ordered else (self.retry_for,)
        return min((each for each in limits if each is not None), default=None)

    @property
    def exchange(self) -> str:
        """The exchange of its events."""
        return exchange_of(self.route, self.pattern)

    def matches(self, message: Message) -> bool:
        """Whether *message* matches by its type or by its first routing key."""
        # A message of another service may have no type, or a routing key with more words.
        is_meant = any(matches(self.pattern, topic) for topic in message.topics) or matches(
            self.route.key_of(self.pattern), message.first_routing_key
        )
        return is_meant and (self.route is EVENTS or self.came_through_exchange(message))

    def came_through_exchange(self, message: Message) -> bool:
        """Whether *message* came through the exchange of this subscription, or through an unknown one."""
        came_by = message.first_exchange
        return came_by == self.exchange or came_by not in (
            conf.events_exchange,
            conf.commands_exchange,
        )

    def matches_type(self, event_type: str) -> bool:
        return matches(self.pattern, event_type)

    def handle(self, event: Event | ReceivedEvent) -> None:
        """Call the handler, and check what it returned."""
        handler = (event.meta.is_debug and self.debug_handler) or self.handler
        raise_if_unfinished(handler(event))

    def event(self, message: Message, payload: Any) -> Event | ReceivedEvent:
        """Return the argument of the handler, or raise Unreadable."""
        meta = meta_of(message, queue=self.queue, subscription=self)
        if self.event_class is None:
            return ReceivedEvent(type=message.type, payload=payload, meta=meta)
        return self.event_class.received(payload, meta)


def default_policy() -> RetryPolicy:
    """Return the retry policy of the settings."""
    waits = conf.retry_delays
    return RetryPolicy(delays=waits, tries=conf.tries or len(waits) + 1)


def policy_for(message: Message, subscription: Subscription | None) -> RetryPolicy:
    """Return the retry policy for *message*; a re-drive has its own number of tries."""
    policy = subscription.policy if subscription else default_policy()
    if not message.round:
        return policy
    return replace(policy, tries=message.redriven_tries or conf.redrive.tries)


def meta_of(message: Message, *, queue: str, subscription: Subscription | None) -> Meta:
    """Return the metadata of *message* for *subscription*."""
    return Meta(
        id=message.id,
        type=message.type,
        version=message.version,
        source=message.source,
        queue=queue,
        subscription=subscription.name if subscription else message.subscription,
        attempt=message.attempt,
        tries=policy_for(message, subscription).tries,
        round=message.round,
        key=message.text(KEY),
        correlation_id=message.correlation_id,
        causation_id=message.text(CAUSATION),
        routing_key=message.first_routing_key,
        published_at=message.sent_at,
        is_debug=message.is_debug,
        headers=dict(message.headers),
        extra=dict(message.extra or {}),
    )


class Registry:
    """All subscriptions of this project, in the order of their registration."""

    def __init__(self) -> None:
        self._subscriptions: list[Subscription] = []

    def __iter__(self) -> Iterator[Subscription]:
        return iter(self._subscriptions)

    def add(self, subscription: Subscription) -> None:
        self._subscriptions.append(subscription)

    def remove(self, subscription: Subscription) -> None:
        self._subscriptions.remove(subscription)

    @property
    def latest(self) -> Subscription:
        return self._subscriptions[-1]

    def named(self, name: str) -> Subscription | None:
        """Return the subscription with this name or alias."""
        known = (each for each in self if name == each.name or name in each.aliases)
        return next(known, None)

    def on_queue(self, queue: str) -> list[Subscription]:
        return [each for each in self if each.queue == queue]

    def receivers(self, queue: str, message: Message) -> list[Subscription]:
        """Return the subscription that *message* is addressed to, or all that match it on *queue*."""
        if name := message.subscription:
            found = self.named(name)
            # The name is in a header, which anybody may send to any queue.
            is_ours = found and found.queue == queue and found.matches(message)
            return [found] if found and is_ours else []
        taking = [each for each in self.on_queue(queue) if each.matches(message)]
        if any(each.route is COMMANDS for each in taking):
            # A subscription to events on the same queue does not receive commands.
            return [each for each in taking if each.came_through_exchange(message)]
        return taking

    def ordered_on(self, queue: str) -> Subscription | None:
        return next((each for each in self.on_queue(queue) if each.ordered), None)

    def is_ordered(self, queue: str) -> bool:
        return self.ordered_on(queue) is not None

    def queues(self) -> list[str]:
        return sorted({each.queue for each in self})

    def databases(self) -> list[str]:
        return sorted({each.using for each in self} | {DEFAULT_DB_ALIAS})


registry = Registry()


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A readable message as it arrived on a queue."""

    message: Message
    payload: Any
    queue: str
    is_redelivered: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """The outcome of a message for one subscription, with its error."""

    subscription: Subscription | None
    outcome: Outcome
    #: The message that was handled, if it differs from the delivery: a retry of an ordered one.
    message: Message | None = None
    error: BaseException | None = None
    event: Any = None
    seconds: float = 0.0
    #: The span of the attempt; None without a tracer.
    span: Any = None
