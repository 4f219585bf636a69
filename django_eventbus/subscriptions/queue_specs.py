"""The queues that the subscriptions of this project need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from django_eventbus.conf import conf
from django_eventbus.events.routing import EVENTS, exchange_of
from django_eventbus.events.system import PATTERN, PINGS
from django_eventbus.subscriptions.subscription import Subscription, default_policy, registry


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """A queue to declare, with its bindings and the delays of its tiers."""

    name: str
    exchange: str
    patterns: tuple[str, ...]
    delays: tuple[float, ...]
    #: Further exchanges and patterns, for event types that have an exchange of their own.
    elsewhere: tuple[tuple[str, str], ...] = ()
    #: The bindings for events of the bus itself; without them a ping does not reach the queue.
    system: tuple[tuple[str, str], ...] = ()
    #: Whether only its first message is delivered, to one subscriber, until it is settled.
    is_ordered: bool = False

    @property
    def bindings(self) -> tuple[tuple[str, str], ...]:
        """Every exchange and pattern of its bindings."""
        wanted = ((self.exchange, pattern) for pattern in self.patterns)
        return tuple(dict.fromkeys((*wanted, *self.elsewhere, *self.system)))


def queue_specs() -> list[QueueSpec]:
    """Return the queues that this project's subscriptions need."""
    return [_spec(queue) for queue in registry.queues()]


def _spec(queue: str) -> QueueSpec:
    subscriptions = registry.on_queue(queue)
    delays = {delay for each in subscriptions for delay in each.policy.delays}
    home = conf.events_exchange
    bindings = {_binding(each) for each in subscriptions}
    return QueueSpec(
        name=queue,
        exchange=home,
        patterns=tuple(sorted(key for exchange, key in bindings if exchange == home)),
        delays=tuple(sorted(delays | set(default_policy().delays))),
        elsewhere=tuple(sorted(each for each in bindings if each[0] != home)),
        system=tuple(_system_bindings()),
        is_ordered=registry.is_ordered(queue),
    )


def _binding(subscription: Subscription) -> tuple[str, str]:
    return subscription.exchange, subscription.route.binding_key_of(subscription.pattern)


def _system_bindings() -> Iterator[tuple[str, str]]:
    # A direct exchange does not support wildcards.
    patterns = PINGS if EVENTS.exchange_type == "direct" else (PATTERN,)
    for each in patterns:
        yield exchange_of(EVENTS, PATTERN), EVENTS.binding_key_of(each)
