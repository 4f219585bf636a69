"""Versions of a queue: a changed argument is a new queue beside the old one."""

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

#: Seconds after which a process looks again which version of a queue is current.
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
    """Return the name of the queue in which a message waits until nobody writes to *queue*."""
    return f"{queue}.retiring"


def retired(queue: str) -> str:
    """Return the name of the queue that the message comes to when the wait is over."""
    return f"{queue}.retired"


def has_versions() -> bool:
    """Whether the layout is ours and has room for a second version beside the first."""
    if conf.topology != "declare":
        return conf.topology == "check" and not conf.given.get("NAMES")
    has_room = all("queue" in placeholders(conf.names[each]) for each in _NAMED_AFTER_THEIR_QUEUE)
    return has_room and not conf.names["tier_return_exchange"]


def current_version(client: TopologyClient, queue: str) -> int:
    """Return the highest version of *queue* that the broker has; 1 if it has none."""
    # Told by the retry exchange: unlike the queue, that of an old version is never deleted,
    # so there are no gaps to stop at.
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
        # RabbitMQ 4.3.0 wants the right to configure even for looking.
        return False


def consumed(
    client: TopologyClient, names: Sequence[str], homes: Mapping[str, str]
) -> dict[str, str]:
    """Return the queues that *names* are on the broker, each with the name it is known by."""
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
    """Yield the DLQ of the current version of *queue*, and older ones that may hold something."""
    current = current_version(client, queue)
    for version in range(1, current):
        old = versioned(queue, version)
        count = client.count(dead_letter_queue(old))
        if count or (count is not None and is_in_use(client, old)):
            yield dead_letter_queue(old)
    yield dead_letter_queue(versioned(queue, current))


def is_in_use(client: TopologyClient, old: str) -> bool:
    """Whether an old version of a queue holds messages, or may still get some."""
    # Once its wait is over nobody consumes it, so that whatever came would be seen.
    count = client.count(old)
    return bool(count) or (count is not None and not is_wait_over(client, old))


def is_wait_over(client: TopologyClient, old: str) -> bool:
    return bool(client.count(retired(old)))


class CurrentVersions:
    """Where addressed messages go. May be used from any thread."""

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
            # An old version is deleted when everybody has looked again, and not before.
            if seen_at is None or time.monotonic() - seen_at >= LOOK_AGAIN_AFTER:
                name = versioned(queue, current_version(TopologyClient(connection), queue))
                self._seen[queue] = (time.monotonic(), name)
            return name
