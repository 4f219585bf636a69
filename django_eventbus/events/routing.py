"""Routes, exchanges and topic patterns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from django_eventbus.conf import conf

Words = tuple[str, ...]
Place = tuple[int, int]


def matches(pattern: str, key: str) -> bool:
    """Whether a RabbitMQ topic exchange would route *key* through a binding with *pattern*."""
    return _matches(_words(pattern), _words(key))


def overlap(one: str, other: str) -> bool:
    """Whether there is a key that both patterns match."""
    return _overlap(_words(one), _words(other))


def _words(topic: str) -> Words:
    # RabbitMQ: the empty key has no words, but "a." has two.
    return tuple(topic.split(".")) if topic else ()


@lru_cache(maxsize=4096)
def _matches(pattern: Words, words: Words) -> bool:
    reached = _past_hashes(pattern, {0})
    for word in words:
        stepped = {
            place if pattern[place] == "#" else place + 1
            for place in reached
            if place < len(pattern) and pattern[place] in ("#", "*", word)
        }
        reached = _past_hashes(pattern, stepped)
    return len(pattern) in reached


def _past_hashes(pattern: Words, places: set[int]) -> set[int]:
    reached = set(places)
    for place in sorted(places):
        while place < len(pattern) and pattern[place] == "#":
            place += 1
            reached.add(place)
    return reached


@lru_cache(maxsize=4096)
def _overlap(one: Words, other: Words) -> bool:
    """Compare both patterns step by step, for every word that either could match."""
    reached: set[Place] = set()
    ahead: set[Place] = {(0, 0)}
    while ahead:
        starts = {
            pair
            for here, there in ahead
            for pair in product(_past_hashes(one, {here}), _past_hashes(other, {there}))
        }
        reached |= starts
        ahead = {step for pair in starts for step in _step(one, other, pair)} - reached
    return (len(one), len(other)) in reached


def _step(one: Words, other: Words, pair: Place) -> list[Place]:
    here, there = pair
    if here == len(one) or there == len(other):
        return []
    mine, theirs = one[here], other[there]
    if mine != theirs and not {mine, theirs} & {"*", "#"}:
        return []
    return [(here + (mine != "#"), there + (theirs != "#"))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The keys of NAMES and EXCHANGE_TYPES for events or for commands."""

    name: str
    exchange: str
    routing_key: str
    binding_key: str

    @property
    def exchange_type(self) -> str:
        return conf.exchange_types[self.name]

    def routing_key_of(self, message_type: str, version: int) -> str:
        """Return the key that a message is published with."""
        return conf.name(self.routing_key, type=message_type, version=version)

    def key_of(self, pattern: str) -> str:
        """Return the pattern of the routing keys of all types that *pattern* matches."""
        template = conf.names[self.routing_key]
        if template == "{type}":
            return pattern
        # The names of other services and versions are not known, so match all of them.
        values = {"service": "*", "type": pattern, "version": "*"}
        filled = template.format(namespace=conf.namespace, **values)
        return ".".join(map(_wildcard, filled.split("."))) if filled else ""

    def binding_key_of(self, pattern: str) -> str:
        """Return the binding key of a queue for the types that *pattern* matches."""
        # A fanout exchange ignores the key. The database transport, which treats all exchanges
        # as topic exchanges, does not.
        if self.exchange_type == "fanout":
            return "#"
        return conf.name(self.binding_key, pattern=pattern, key=self.key_of(pattern))


def _wildcard(word: str) -> str:
    # For a broker, only a whole word is a wildcard: "v*" is an ordinary word.
    for each in ("#", "*"):
        if each in word:
            return each
    return word


EVENTS = Route(
    name="events",
    exchange="events_exchange",
    routing_key="routing_key",
    binding_key="binding_key",
)
COMMANDS = Route(
    name="commands",
    exchange="commands_exchange",
    routing_key="command_routing_key",
    binding_key="command_binding_key",
)


def exchange_of(route: Route, topic: str) -> str:
    """Return the exchange for a type or a pattern: from ROUTES, or else that of its *route*."""
    if route is EVENTS:
        for pattern, template in conf.routes.items():
            if matches(pattern, topic):
                return conf.filled(template)
    return conf.name(route.exchange)


def is_for_commands(exchange: str) -> bool:
    """Whether only commands are published to *exchange*."""
    return exchange == conf.commands_exchange != conf.events_exchange


def type_of(exchange: str) -> str:
    """Return the type of *exchange*, such as topic or fanout."""
    return conf.exchange_types["commands" if is_for_commands(exchange) else "events"]
