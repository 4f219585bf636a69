"""The RabbitMQ transport: the only package that imports pika."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from django_eventbus.durations import label
from django_eventbus.subscriptions.queue_specs import QueueSpec
from django_eventbus.transports.contract import Level, Problem, PublishedType
from django_eventbus.transports.rabbitmq.connection import BrokerConnection
from django_eventbus.transports.rabbitmq.doctor.facts import collect
from django_eventbus.transports.rabbitmq.doctor.rules import problems
from django_eventbus.transports.rabbitmq.parameters import BrokerAddress, address_of
from django_eventbus.transports.rabbitmq.publisher import RabbitmqPublisher
from django_eventbus.transports.rabbitmq.reply_box import RabbitmqReplyBox
from django_eventbus.transports.rabbitmq.subscriber import RabbitmqSubscriber
from django_eventbus.transports.rabbitmq.topology.client import TopologyClient
from django_eventbus.transports.rabbitmq.topology.declare import current, establish, restore
from django_eventbus.transports.rabbitmq.topology.resources import (
    Bind,
    QueueResource,
    dead_letter_queue,
    owns_dead_letter_queue,
    resources,
    tier,
)
from django_eventbus.transports.rabbitmq.topology.versions import (
    consumed,
    current_version,
    versioned,
)


def level(client: TopologyClient, spec: QueueSpec) -> Level:
    """Return the level of the queue of *spec*, including older versions of it that still exist."""
    names = [
        versioned(spec.name, version)
        for version in range(1, current_version(client, spec.name) + 1)
    ]
    found = [each for name in names if (each := client.found(QueueResource(name=name)))]
    return Level(
        queue=spec.name,
        messages=sum(each.method.message_count for each in found) if found else None,
        consumers=sum(each.method.consumer_count for each in found),
        tiers={
            label(delay): _sum(client.count(tier(name, delay)) for name in names)
            for delay in sorted(set(spec.delays) - {0.0})
        },
        dlq=dead_letter_queue(names[-1]),
        dlq_messages=_sum(client.count(dead_letter_queue(name)) for name in names),
    )


def _sum(counts: Iterator[int | None]) -> int | None:
    """Return the sum of the counts that are known, or None if none is."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


class RabbitmqTransport:
    """The broker at *address*."""

    concurrency_limit: int | None = None

    def __init__(self, address: BrokerAddress) -> None:
        self.address = address
        self._specs: dict[str, QueueSpec] = {}
        #: The queue of each DLQ. A new version of the queue has its own DLQ.
        self._homes: dict[str, str] = {}

    def declare(self, queues: Sequence[QueueSpec]) -> None:
        self._specs |= {queue.name: queue for queue in queues}
        with self.topology_client() as client:
            establish(client, queues)

    def remove(self, queues: Sequence[QueueSpec]) -> None:
        made = {str(each): each for queue in queues for each in resources(queue)}
        with self.topology_client() as client:
            for resource in made.values():
                if not isinstance(resource, Bind):
                    client.delete(resource)

    @contextmanager
    def topology_client(self) -> Iterator[TopologyClient]:
        """Connect to read or change the topology."""
        with self._connected("topology") as connection:
            yield TopologyClient(connection)

    @contextmanager
    def _connected(self, purpose: str) -> Iterator[BrokerConnection]:
        connection = BrokerConnection(self.address, purpose)
        connection.open()
        try:
            yield connection
        finally:
            connection.close()

    def dead_letter_queue(self, queue: str) -> str | None:
        name = dead_letter_queue(queue)
        self._homes[name] = queue
        return name

    def owns_dead_letter_queues(self) -> bool:
        return owns_dead_letter_queue()

    def diagnose(
        self, queues: Sequence[QueueSpec], published: Sequence[PublishedType]
    ) -> list[Problem]:
        with self._connected("doctor") as connection:
            client = TopologyClient(connection)
            specs = [current(client, queue) for queue in queues]
            return list(problems(collect(connection, specs, published), published))

    def levels(self, queues: Sequence[QueueSpec]) -> list[Level]:
        with self._connected("levels") as connection:
            client = TopologyClient(connection)
            return [level(client, each) for each in queues]

    def publisher(self) -> RabbitmqPublisher:
        return RabbitmqPublisher(self.address, self._restore, self._homes)

    def _restore(self, queues: set[str]) -> None:
        with self.topology_client() as client:
            restore(client, [spec for name, spec in self._specs.items() if name in queues])

    def subscriber(self, queues: Sequence[str], prefetch: int) -> RabbitmqSubscriber:
        specs = [self._specs[name] for name in queues if name in self._specs]

        def prepare(connection: BrokerConnection) -> dict[str, str]:
            client = TopologyClient(connection)
            restore(client, specs)
            return consumed(client, queues, self._homes)

        is_ordered = any(spec.is_ordered for spec in specs)
        return RabbitmqSubscriber(self.address, prefetch, prepare, is_ordered=is_ordered)

    def reply_box(self) -> RabbitmqReplyBox:
        return RabbitmqReplyBox(self.address)


def from_url(url: str) -> RabbitmqTransport:
    """Parse an amqp:// or amqps:// URL."""
    return RabbitmqTransport(address_of(url))
