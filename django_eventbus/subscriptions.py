"""@subscribe, and the registry of subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from django.db import DEFAULT_DB_ALIAS

from django_eventbus.conf import conf, delays, wait
from django_eventbus.durations import Duration, seconds
from django_eventbus.events import Command, Event, Meta, ReceivedEvent
from django_eventbus.handlers import refuse_unfinished
from django_eventbus.messages import CAUSATION, KEY, REDRIVEN_TRIES, Message
from django_eventbus.patterns import matches
from django_eventbus.retries import Errors, OneOrMore, RetryPolicy, errors_of
from django_eventbus.routing import EVENTS, Route, exchange_of
from django_eventbus.setting_values import count

Handler = Callable[[Any], object]
#: Called with the error and the event after an outcome is recorded.
Hook = Callable[[BaseException, Any], object]
H = TypeVar("H", bound=Handler)


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

    def ordered_on(self, queue: str) -> Subscription | None:
        return next((each for each in self.on_queue(queue) if each.ordered), None)

    def is_ordered(self, queue: str) -> bool:
        return self.ordered_on(queue) is not None

    def queues(self) -> list[str]:
        return sorted({each.queue for each in self})

    def databases(self) -> list[str]:
        return sorted({each.using for each in self} | {DEFAULT_DB_ALIAS})


registry = Registry()


@dataclass(frozen=True, slots=True)
class Topic:
    """What a subscription is for."""

    pattern: str
    event_class: type[Event] | None = None
    route: Route = EVENTS


def subscribe(  # noqa: PLR0913
    pattern: str | type[Event] | Topic,
    *,
    queue: str = "",
    name: str = "",
    aliases: Iterable[str] = (),
    retry: Duration | Iterable[Duration] | None = None,
    tries: int | None = None,
    retry_on: OneOrMore = (),
    park_on: OneOrMore = (),
    skip_on: OneOrMore = (),
    retry_for: Duration | None = None,
    retry_client_errors: bool = False,
    timeout: Duration | None = None,
    on_retry: Hook | None = None,
    on_parked: Hook | None = None,
    debug_handler: Handler | None = None,
    ordered: bool = False,
    hold_key: bool | None = None,
    atomic: bool = True,
    using: str = DEFAULT_DB_ALIAS,
) -> Callable[[H], H]:
    """Run the decorated function, once in effect, for each event that *pattern* matches."""
    topic = pattern if isinstance(pattern, Topic) else _event_topic(pattern)

    def register(handler: H) -> H:
        registry.add(
            Subscription(
                name=name or name_of(handler),
                handler=handler,
                pattern=topic.pattern,
                event_class=topic.event_class,
                route=topic.route,
                queue_name=queue,
                aliases=(aliases,) if isinstance(aliases, str) else tuple(aliases),
                delays=None if retry is None else delays(_listed(retry)),
                tries=None if tries is None else count(tries),
                retry_on=errors_of("retry_on", retry_on),
                park_on=errors_of("park_on", park_on),
                skip_on=errors_of("skip_on", skip_on),
                retry_for=None if retry_for is None else seconds(retry_for),
                retry_client_errors=retry_client_errors,
                timeout=None if timeout is None else wait(timeout),
                on_retry=on_retry,
                on_parked=on_parked,
                debug_handler=debug_handler,
                ordered=ordered,
                hold_key=hold_key,
                atomic=atomic,
                using=using,
            )
        )
        return handler

    return register


def _event_topic(pattern: object) -> Topic:
    if isinstance(pattern, str):
        return Topic(pattern)
    if isinstance(pattern, type) and issubclass(pattern, Command):
        raise TypeError(f"{pattern.__name__} is a command: write @handle_command above its handler")
    if isinstance(pattern, type) and issubclass(pattern, Event):
        return Topic(pattern.event_type, pattern)
    raise TypeError(
        f"@subscribe was given {pattern!r:.100}: write @subscribe('order.placed'), "
        "@subscribe('order.*'), or an Event class"
    )


def _listed(retry: object) -> object:
    return retry if isinstance(retry, str) or not isinstance(retry, Iterable) else list(retry)


def name_of(handler: Callable[..., object]) -> str:
    """Return the name of a subscription that was given none: where its handler is."""
    module = handler.__module__.removesuffix(".subscribers")
    return f"{module}.{handler.__qualname__}"
