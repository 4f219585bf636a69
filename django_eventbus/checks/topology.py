"""Checks of names and subscriptions that meet on one broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django_eventbus.conf import conf
from django_eventbus.durations import label
from django_eventbus.events.routing import type_of
from django_eventbus.subscriptions.queue_specs import QueueSpec

#: A hundred years, as no other label is longer.
_LONGEST_DELAY = "3153600000000ms"

#: RabbitMQ 4.3.5 and newer refuse a binding to a topic exchange with more of them.
_MOST_HASHES = 2

Fault = tuple[str, str]


def names_of(queue: str) -> Iterator[str]:
    """Yield the names and keys that a broker must accept for *queue*."""
    tier = conf.queue_part("tier", queue, delay=_LONGEST_DELAY)
    yield tier
    yield conf.queue_part("tier_key", queue, delay=_LONGEST_DELAY, tier=tier)
    yield conf.queue_part("retry_exchange", queue)
    yield conf.queue_part("dead_letter_exchange", queue)
    yield conf.queue_part("dead_letter_queue", queue)


def faults(specs: Sequence[QueueSpec]) -> Iterator[Fault]:
    """Yield the problems of the topology, each with its remedy."""
    yield from _shared_tiers(specs)
    for spec in specs:
        yield from _dead_ends(spec)
    yield from _wildcards(specs)


def _shared_tiers(specs: Sequence[QueueSpec]) -> Iterator[Fault]:
    owners: dict[str, str] = {}
    for spec in specs:
        for delay in sorted(set(spec.delays) - {0.0}):
            name = conf.queue_part("tier", spec.name, delay=label(delay))
            owner = f"{spec.name} after {label(delay)}"
            if owners.setdefault(name, owner) != owner:
                yield (
                    f"The tier {name!r} would serve both {owners[name]} and {owner}.",
                    "Put {delay} and {queue} into NAMES['tier'] and NAMES['tier_key'], or have "
                    "one delay in RETRY_DELAYS and retry=, and one queue.",
                )


def _dead_ends(spec: QueueSpec) -> Iterator[Fault]:
    """Yield keys that lead nowhere: the default exchange routes only by the name of a queue."""
    queue = spec.name
    tier = conf.queue_part("tier", queue, delay="1s")
    dlq = conf.queue_part("dead_letter_queue", queue)
    paths = (
        ("retry_exchange", "tier_key", tier, {"delay": "1s", "tier": tier}),
        ("tier_return_exchange", "tier_return_key", queue, {"delay": "1s"}),
        ("dead_letter_exchange", "dead_letter_key", dlq, {"dead_letter_queue": dlq}),
    )
    for exchange, key, name, values in paths:
        if not conf.names[exchange] and conf.queue_part(key, queue, **values) != name:
            yield (
                f"NAMES[{exchange!r}] is '', the default exchange, but NAMES[{key!r}] "
                f"does not make {name!r}.",
                "The default exchange uses the name of a queue as the key: write "
                + {"tier_key": "'{tier}'", "tier_return_key": "'{queue}'"}.get(
                    key, "'{dead_letter_queue}'"
                )
                + f" as NAMES[{key!r}].",
            )


def _wildcards(specs: Sequence[QueueSpec]) -> Iterator[Fault]:
    for spec in specs:
        for exchange, pattern in spec.bindings:
            if type_of(exchange) == "direct" and {"*", "#"} & set(pattern.split(".")):
                yield (
                    f"The pattern {pattern!r} on {spec.name} matches nothing on a direct exchange.",
                    "Subscribe to event types without wildcards, or use another EXCHANGE_TYPES.",
                )


def refused_bindings(specs: Sequence[QueueSpec]) -> Iterator[Fault]:
    """Yield the bindings that some versions of RabbitMQ refuse."""
    for spec in specs:
        for exchange, pattern in spec.bindings:
            if type_of(exchange) == "topic" and pattern.split(".").count("#") > _MOST_HASHES:
                yield (
                    f"The binding of {spec.name} with {pattern!r} has three or more '#': "
                    "RabbitMQ 4.3.5 and newer refuse it.",
                    "Subscribe to a pattern with at most two '#'; a single '#' between two dots "
                    "matches any number of words.",
                )
