"""System checks eventbus.E001 and on. None of them contacts a broker or a database."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

from django.core import checks
from django.core.checks import CheckMessage, Error

from django_eventbus import transports
from django_eventbus.checks import topology
from django_eventbus.checks.databases import (
    check_databases,
    check_sqlite,
    check_time_zones,
    check_vendor,
)
from django_eventbus.checks.logins import (
    check_passwords_in_urls,
    check_plain_connections,
    check_verification,
)
from django_eventbus.conf import NAME_LIMIT, SETTINGS, conf
from django_eventbus.conf.parsers import is_word
from django_eventbus.events.routing import COMMANDS, overlap
from django_eventbus.events.system import is_system
from django_eventbus.exceptions import BadSetting
from django_eventbus.subscriptions.queue_specs import queue_specs
from django_eventbus.subscriptions.subscription import registry

TAG = "eventbus"

#: Names that RabbitMQ needs beside the main queue's, for its DLQ and its tiers.
_TAKEN = ("dlq", "retry", "retiring", "retired")
_VERSION = re.compile(r"v\d+")

_PATTERN = re.compile(r"([A-Za-z0-9_-]+|\*|#)(\.([A-Za-z0-9_-]+|\*|#))*")
_NOT_PLAIN = (
    inspect.iscoroutinefunction,
    inspect.isgeneratorfunction,
    inspect.isasyncgenfunction,
)


def register_all() -> None:
    for check in CHECKS:
        checks.register(_guarded(check), TAG)


def problems() -> list[CheckMessage]:
    """Return what all checks find."""
    return [message for check in CHECKS for message in _guarded(check)(None)]


def check_service(**kwargs: Any) -> Iterator[CheckMessage]:
    given = conf.given
    if "SERVICE" not in given:
        yield Error(
            "EVENTBUS has no SERVICE.",
            hint="Add EVENTBUS = {'SERVICE': 'orders'}, with your service's name, to the settings.",
            id="eventbus.E001",
        )


def check_unknown_keys(**kwargs: Any) -> Iterator[CheckMessage]:
    for key, guess in conf.unknown_keys():
        hint = f"Did you mean {guess}?" if guess else f"The keys are {', '.join(sorted(SETTINGS))}."
        yield Error(f"EVENTBUS has an unknown key {key!r}.", hint=hint, id="eventbus.E002")


def check_values(**kwargs: Any) -> Iterator[CheckMessage]:
    for problem in conf.problems():
        if problem.key in conf.given:
            hint = f"Correct it, or remove {problem.key} to use its default."
            if problem.key == "SERVICE":
                hint = "Name this service, for instance 'orders'."
            yield Error(str(problem), hint=hint, id="eventbus.E003")


def check_transport(**kwargs: Any) -> Iterator[CheckMessage]:
    url = conf.broker_url
    try:
        transports.connect(url)
    except BadSetting as problem:
        yield Error(
            str(problem),
            hint="Write 'database://' or 'amqp://user:password@host:5672/vhost'.",
            id="eventbus.E005",
        )


def check_names(**kwargs: Any) -> Iterator[CheckMessage]:
    for name in sorted(
        {conf.events_exchange, conf.commands_exchange, conf.queue(), *registry.queues()}
    ):
        longest = max((name, *topology.names_of(name)), key=lambda each: len(each.encode()))
        if len(longest.encode()) > NAME_LIMIT:
            yield Error(
                f"The name {name[:40]!r}… has {len(name.encode())} bytes. With its tiers it would "
                f"exceed a broker's limit of {NAME_LIMIT} bytes.",
                hint="Shorten SERVICE, NAMESPACE or the queue= of its subscriptions.",
                id="eventbus.E004",
            )
    for each in registry:
        key = each.route.binding_key_of(each.pattern)
        if max(len(name.encode()) for name in (each.name, each.pattern, key)) > NAME_LIMIT:
            yield Error(
                f"The subscription {each.name[:40]!r} has a name or pattern over 255 bytes.",
                hint="Pass a shorter name= or pattern to @subscribe.",
                id="eventbus.E004",
            )


def check_queue_names(**kwargs: Any) -> Iterator[CheckMessage]:
    for each in registry:
        name = each.queue_name
        if name and not all(map(_may_name_a_queue, name.split("."))):
            yield Error(
                f"The subscription {each.name!r} has queue={name!r}, which is not a "
                "name of letters, digits, '-', '_' and dots in between, or is the bus's own.",
                hint=f"Choose another name, and none of {', '.join(_TAKEN)}, v2, v3 ….",
                id="eventbus.E010",
            )


def _may_name_a_queue(part: str) -> bool:
    return is_word(part) and part not in _TAKEN and not _VERSION.fullmatch(part)


def check_layout(**kwargs: Any) -> Iterator[CheckMessage]:
    for fault, hint in topology.faults(queue_specs()):
        yield Error(fault, hint=hint, id="eventbus.E012")


def check_bindings(**kwargs: Any) -> Iterator[CheckMessage]:
    for fault, hint in topology.refused_bindings(queue_specs()):
        yield Error(fault, hint=hint, id="eventbus.E018")


def check_commands(**kwargs: Any) -> Iterator[CheckMessage]:
    commands = [each for each in registry if each.route is COMMANDS]
    for one, other in combinations(commands, 2):
        if one.queue != other.queue and overlap(one.pattern, other.pattern):
            yield Error(
                f"The command {one.pattern!r} of {one.name!r} is handled on the queue {one.queue}, "
                f"and by {other.name!r} on {other.queue} too.",
                hint="A command is handled once. Handle it on one queue only, or publish an event instead.",
                id="eventbus.E013",
            )


def check_subscription_names(**kwargs: Any) -> Iterator[CheckMessage]:
    names = Counter(name for each in registry for name in {each.name, *each.aliases})
    for name, times in names.items():
        if times > 1:
            yield Error(
                f"{times} subscriptions are called {name!r}.",
                hint="Give each a name= of its own: the inbox knows a subscription by it.",
                id="eventbus.E006",
            )


def check_event_types(**kwargs: Any) -> Iterator[CheckMessage]:
    for each in registry:
        if not _PATTERN.fullmatch(each.pattern):
            yield Error(
                f"The subscription {each.name!r} has no event type or pattern that could match: "
                f"{each.pattern[:100]!r}.",
                hint="Subscribe to 'order.placed', 'order.*', or an Event class with a type=.",
                id="eventbus.E007",
            )


def check_system_events(**kwargs: Any) -> Iterator[CheckMessage]:
    for each in registry:
        if is_system(each.pattern):
            yield Error(
                f"The subscription {each.name!r} is to {each.pattern!r}, which is reserved for the bus "
                "and never reaches a handler.",
                hint="Subscribe to another type.",
                id="eventbus.E014",
            )


def check_ordered_queues(**kwargs: Any) -> Iterator[CheckMessage]:
    for queue in filter(registry.is_ordered, registry.queues()):
        names = [each.name for each in registry.on_queue(queue)]
        if len(names) > 1:
            yield Error(
                f"The queue {queue} is ordered, and {len(names)} subscriptions share it: "
                f"{', '.join(map(repr, sorted(names)))}.",
                hint="Give the one with ordered=True a queue= of its own.",
                id="eventbus.E015",
            )


def check_held_keys(**kwargs: Any) -> Iterator[CheckMessage]:
    for each in registry:
        if each.hold_key and not each.ordered:
            yield Error(
                f"The subscription {each.name!r} has hold_key=True and is not ordered.",
                hint="Add ordered=True, or remove hold_key=True.",
                id="eventbus.E016",
            )
        elif each.holds_keys and conf.park_to == "broker":
            yield Error(
                f"The subscription {each.name!r} holds keys, and PARK_TO is 'broker'.",
                hint="Set PARK_TO to 'database': messages in a DLQ hold no key.",
                id="eventbus.E016",
            )


def check_handlers(**kwargs: Any) -> Iterator[CheckMessage]:
    for each in registry:
        handlers = (each.handler, each.debug_handler)
        if any(kind(handler) for kind in _NOT_PLAIN for handler in handlers):
            yield Error(
                f"The handler of {each.name!r} is a coroutine or a generator: calling it does "
                "not run it.",
                hint="Write it with def, and without yield.",
                id="eventbus.E011",
            )


CHECKS: tuple[Callable[..., Iterator[CheckMessage]], ...] = (
    check_service,
    check_unknown_keys,
    check_values,
    check_transport,
    check_names,
    check_queue_names,
    check_layout,
    check_bindings,
    check_commands,
    check_subscription_names,
    check_event_types,
    check_system_events,
    check_ordered_queues,
    check_held_keys,
    check_handlers,
    check_databases,
    check_vendor,
    check_sqlite,
    check_time_zones,
    check_passwords_in_urls,
    check_plain_connections,
    check_verification,
)


def _guarded(check: Callable[..., Iterator[CheckMessage]]) -> Callable[..., list[CheckMessage]]:
    """Let a check rely on settings that another check reports as wrong."""

    def run(app_configs: object, **kwargs: Any) -> list[CheckMessage]:
        try:
            return list(check(**kwargs))
        except BadSetting as problem:
            if check is not check_service:
                return []
            hint = "Write EVENTBUS = {'SERVICE': 'orders'}, with your service's name."
            return [Error(str(problem), hint=hint, id="eventbus.E001")]

    return run
