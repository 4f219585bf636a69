"""Versions of a queue: if an argument changes, a new queue is declared in addition."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from django_eventbus.conf import conf
from django_eventbus.conf.names import placeholders
from django_eventbus.exceptions import BrokerRefused
from django_eventbus.transports.contract import Address, ToExchange, ToReply
from django_eventbus.transports.rabbitmq.connection import BrokerConnection
from django_eventbus.transports.rabbitmq.encoding import name_problem
from django_eventbus.transports.rabbitmq.topology.client import TopologyClient
from django_eventbus.transports.rabbitmq.topology.resources import (
    Exchange,
    dead_letter_queue,
    retry_exchange,
)

#: Seconds after which a process checks again which version of a queue is current.
LOOK_AGAIN_AFTER = 30.0
_NAMED_AFTER_THEIR_QUEUE = (
    "retry_exchange",
    "tier",
    "tier_return_key",
    "dead_letter_exchange",
    "dead_letter_queue",
)


def versioned(queue: str, version: int) -> str:
    return queue if version == 1 else f"{queue}.v{version}"


def retiring(queue: str) -> str:
    """Return the name of the queue in which a message waits until no process writes to *queue*."""
    return f"{queue}.retiring"


def retired(queue: str) -> str:
    """Return the name of the queue to which the message moves when the wait is over."""
    return f"{queue}.retired"


def has_versions() -> bool:
    """Whether this project decides on the topology and NAMES allow several versions of a queue."""
    if conf.topology != "declare":
        return conf.topology == "check" and not conf.given.get("NAMES")
    has_room = all("queue" in placeholders(conf.names[each]) for each in _NAMED_AFTER_THEIR_QUEUE)
    return has_room and not conf.names["tier_return_exchange"]


def current_version(client: TopologyClient, queue: str) -> int:
    """Return the highest version of *queue* that the broker has; 1 if it has none."""
    # Check the retry exchanges: unlike the queues of old versions, they are never deleted, so
    # there are no gaps.
    version = 1
    while has_versions() and _exists(client, retry_exchange(versioned(queue, version + 1))):
        version += 1
    return version


def _exists(client: TopologyClient, exchange: str) -> bool:
    if name_problem(exchange, ""):
        return False
    try:
        return client.exists(Exchange(name=exchange, kind=""))
    except BrokerRefused:
        # RabbitMQ 4.3.0 requires the configure permission even for a passive declare.
        return False


def consumed(
    client: TopologyClient, names: Sequence[str], homes: Mapping[str, str]
) -> dict[str, str]:
    """Return the queues on the broker for *names*, each with its name without a version."""
    return {
        box: name
        for name in names
        for box in (
            _dead_letter_boxes(client, homes[name]) if name in homes else _boxes(client, name)
        )
    }


def _boxes(client: TopologyClient, queue: str) -> Iterator[str]:
    """Yield the current version of *queue*, and older ones that are still in use."""
    current = current_version(client, queue)
    for version in range(1, current):
        if is_in_use(client, versioned(queue, version)):
            yield versioned(queue, version)
    yield versioned(queue, current)


def _dead_letter_boxes(client: TopologyClient, queue: str) -> Iterator[str]:
    """Yield the DLQ of the current version of *queue*, and older ones that may have messages."""
    current = current_version(client, queue)
    for version in range(1, current):
        old = versioned(queue, version)
        count = client.count(dead_letter_queue(old))
        if count or (count is not None and is_in_use(client, old)):
            yield dead_letter_queue(old)
    yield dead_letter_queue(versioned(queue, current))


def is_in_use(client: TopologyClient, old: str) -> bool:
    """Whether an old version of a queue has messages, or may still receive some."""
    # When its wait is over, no process consumes it, so a late message would stay and be counted.
    count = client.count(old)
    return bool(count) or (count is not None and not is_wait_over(client, old))


def is_wait_over(client: TopologyClient, old: str) -> bool:
    return bool(client.count(retired(old)))


class CurrentVersions:
    """Finds the current versions of queues for addresses. May be used from any thread."""

    def __init__(self, homes: Mapping[str, str]) -> None:
        #: The queue that each DLQ belongs to.
        self._homes = homes
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[float | None, str]] = {}

    def address(self, address: Address, connection: BrokerConnection) -> Address:
        """Return *address* with the current version of its queue."""
        if isinstance(address, ToExchange | ToReply) or not has_versions():
            return address
        if home := self._homes.get(address.queue):
            return replace(address, queue=dead_letter_queue(self._current(home, connection)))
        return replace(address, queue=self._current(address.queue, connection))

    def _current(self, queue: str, connection: BrokerConnection) -> str:
        with self._lock:
            seen_at, name = self._seen.get(queue, (None, queue))
            # An old version is deleted only after all processes have checked again.
            if seen_at is None or time.monotonic() - seen_at >= LOOK_AGAIN_AFTER:
                name = versioned(queue, current_version(TopologyClient(connection), queue))
                self._seen[queue] = (time.monotonic(), name)
            return name
