"""Subscriptions, and the registry of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from django.db import DEFAULT_DB_ALIAS

from django_eventbus.conf import conf
from django_eventbus.events import Event, Meta, ReceivedEvent
from django_eventbus.handlers import refuse_unfinished
from django_eventbus.messages import CAUSATION, KEY, REDRIVEN_TRIES, Message
from django_eventbus.patterns import matches
from django_eventbus.retries import Errors, RetryPolicy
from django_eventbus.routing import COMMANDS, EVENTS, Route, exchange_of

Handler = Callable[[Any], object]
#: Called with the error and the event after an outcome is recorded.
Hook = Callable[[BaseException, Any], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A handler bound to a pattern on a queue. Known by its name, for ever."""

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
        """The first name it had, under which everything is recorded."""
        # For ever: during a deploy, old and new processes must find each other's records.
        return self.aliases[-1] if self.aliases else self.name

    @property
    def policy(self) -> RetryPolicy:
        """The retry policy: what the subscription says, else what the settings say."""
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
        """Whether later events of a key wait while one of it is parked."""
        return self.ordered and (conf.hold_keys if self.hold_key is None else self.hold_key)

    @property
    def _budget(self) -> float | None:
        # The next message waits for as long as this one is tried.
        limits = (self.retry_for, conf.ordered_block) if self.ordered else (self.retry_for,)
        return min((each for each in limits if each is not None), default=None)

    @property
    def exchange(self) -> str:
        """Where what it takes is published."""
        return exchange_of(self.route, self.pattern)

    def matches(self, message: Message) -> bool:
        """Whether it takes *message*, by its type or by the key it was first published with."""
        # A stranger's message need not have a type, and its key has more in it than that.
        is_meant = any(matches(self.pattern, topic) for topic in message.topics) or matches(
            self.route.key_of(self.pattern), message.first_routing_key
        )
        return is_meant and (self.route is EVENTS or self.is_on_the_way_of(message))

    def is_on_the_way_of(self, message: Message) -> bool:
        """Whether *message* was not published as a command to an event's handler, or reversely."""
        came_by = message.first_exchange
        return came_by == self.exchange or came_by not in (
            conf.events_exchange,
            conf.commands_exchange,
        )

    def matches_type(self, event_type: str) -> bool:
        return matches(self.pattern, event_type)

    def handle(self, event: Event | ReceivedEvent) -> None:
        """Call the handler, and see that it has done its work."""
        handler = (event.meta.is_debug and self.debug_handler) or self.handler
        refuse_unfinished(handler(event))

    def event(self, message: Message, payload: Any) -> Event | ReceivedEvent:
        """Build what the handler is given, or raise Unreadable."""
        meta = meta_of(message, queue=self.queue, subscription=self)
        if self.event_class is None:
            return ReceivedEvent(type=message.type, payload=payload, meta=meta)
        return self.event_class.received(payload, meta)


def default_policy() -> RetryPolicy:
    """Return the retry policy of the settings."""
    waits = conf.retry_delays
    return RetryPolicy(delays=waits, tries=conf.tries or len(waits) + 1)


def policy_for(message: Message, subscription: Subscription | None) -> RetryPolicy:
    """Return the policy that *message* fails by; a re-drive has tries of its own."""
    policy = subscription.policy if subscription else default_policy()
    if not message.round:
        return policy
    return replace(policy, tries=message.number(REDRIVEN_TRIES) or conf.redrive_tries)


def meta_of(message: Message, *, queue: str, subscription: Subscription | None) -> Meta:
    """Return what is known of *message* as *subscription* sees it."""
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
    """All subscriptions of this project, in the order they were made."""

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
        """Return the subscription that is, or once was, called *name*."""
        known = (each for each in self if name == each.name or name in each.aliases)
        return next(known, None)

    def on_queue(self, queue: str) -> list[Subscription]:
        return [each for each in self if each.queue == queue]

    def receivers(self, queue: str, message: Message) -> list[Subscription]:
        """Return whom *message* is for on *queue*: whom it is addressed to, or all that match."""
        if name := message.subscription:
            return [found] if (found := self.named(name)) else []
        taking = [each for each in self.on_queue(queue) if each.matches(message)]
        if any(each.route is COMMANDS for each in taking):
            # A handler of events by pattern, on the same queue, is not given commands.
            return [each for each in taking if each.is_on_the_way_of(message)]
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
