"""The decorators @subscribe and @handle_command."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db import DEFAULT_DB_ALIAS

from django_eventbus.conf.parsers import count, delays, wait
from django_eventbus.durations import Duration, seconds
from django_eventbus.events.event import Command, Event
from django_eventbus.events.routing import COMMANDS, EVENTS, Route
from django_eventbus.subscriptions.retries import OneOrMore, errors_of
from django_eventbus.subscriptions.subscription import Handler, Hook, Subscription, registry

H = TypeVar("H", bound=Handler)


@dataclass(frozen=True, slots=True)
class Topic:
    """The pattern, the event class and the route of a subscription."""

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
    """Run the decorated function, with effect once, for each event that *pattern* matches."""
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
        raise TypeError(
            f"{pattern.__name__} is a command: use @handle_command instead of @subscribe"
        )
    if isinstance(pattern, type) and issubclass(pattern, Event):
        return Topic(pattern.event_type, pattern)
    raise TypeError(
        f"@subscribe does not accept {pattern!r:.100}. Use @subscribe('order.placed'), "
        "@subscribe('order.*'), or an Event class"
    )


def _listed(retry: object) -> object:
    return retry if isinstance(retry, str) or not isinstance(retry, Iterable) else list(retry)


def name_of(handler: Callable[..., object]) -> str:
    """Return the default name of a subscription: the module and name of its handler."""
    module = handler.__module__.removesuffix(".subscribers")
    return f"{module}.{handler.__qualname__}"


def handle_command(command: str | type[Command], **options: Any) -> Callable[[H], H]:
    """Run the decorated function for each *command*; *options* are those of @subscribe."""
    return subscribe(_topic(command), **options)


def _topic(command: object) -> Topic:
    if isinstance(command, str):
        return Topic(command, route=COMMANDS)
    if isinstance(command, type) and issubclass(command, Command):
        return Topic(command.event_type, command, COMMANDS)
    raise TypeError(
        f"@handle_command does not accept {command!r:.100}. Use @handle_command('file.reprocess'), "
        "@handle_command('file.*'), or a Command class"
    )
