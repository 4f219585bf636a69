"""The ways that events and commands take: exchanges, routing keys, and what queues are bound by."""

from __future__ import annotations

from dataclasses import dataclass

from django_eventbus.conf import conf
from django_eventbus.patterns import matches


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The keys of NAMES and EXCHANGE_TYPES that lead one kind of message."""

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
        # Also of other services and versions: their words are not known here.
        values = {"service": "*", "type": pattern, "version": "*"}
        filled = template.format(namespace=conf.namespace, **values)
        return ".".join(map(_wildcard, filled.split("."))) if filled else ""

    def binding_key_of(self, pattern: str) -> str:
        """Return the key that a queue is bound by for what *pattern* matches."""
        # A fanout exchange ignores it; the database transport, which knows no types, does not.
        if self.exchange_type == "fanout":
            return "#"
        return conf.name(self.binding_key, pattern=pattern, key=self.key_of(pattern))


def _wildcard(word: str) -> str:
    # A broker knows wildcards as whole words only: "v*" is one like any other.
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
    """Return the exchange for a type, or for a pattern of them: that of its route, unless ROUTES knows better."""
    if route is EVENTS:
        for pattern, template in conf.routes.items():
            if matches(pattern, topic):
                return conf.filled(template)
    return conf.name(route.exchange)


def is_for_commands(exchange: str) -> bool:
    """Whether commands, and no events, are published to *exchange*."""
    return exchange == conf.commands_exchange != conf.events_exchange


def type_of(exchange: str) -> str:
    """Return the type of an exchange that events or commands are published to."""
    return conf.exchange_types["commands" if is_for_commands(exchange) else "events"]
