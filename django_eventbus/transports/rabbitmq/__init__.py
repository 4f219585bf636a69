"""RabbitMQ 3.10 to 4.x. The only place that imports pika."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from django_eventbus.findings import Finding
from django_eventbus.transports.contract import Level, Published, QueueSpec
from django_eventbus.transports.rabbitmq.connection import BrokerConnection
from django_eventbus.transports.rabbitmq.declaring import current, establish, restore
from django_eventbus.transports.rabbitmq.doctor import findings
from django_eventbus.transports.rabbitmq.examining import gather
from django_eventbus.transports.rabbitmq.inquiry import Inquiry
from django_eventbus.transports.rabbitmq.levels import level
from django_eventbus.transports.rabbitmq.parameters import BrokerAddress, address_of
from django_eventbus.transports.rabbitmq.publisher import RabbitmqPublisher
from django_eventbus.transports.rabbitmq.reply_box import RabbitmqReplyBox
from django_eventbus.transports.rabbitmq.subscriber import RabbitmqSubscriber
from django_eventbus.transports.rabbitmq.topology import (
    Bind,
    dead_letter_queue,
    owns_dead_letter_queue,
    resources,
)
from django_eventbus.transports.rabbitmq.versions import consumed


class RabbitmqTransport:
    """The broker at *address*."""

    concurrency_limit: int | None = None

    def __init__(self, address: BrokerAddress) -> None:
        self.address = address
        self._specs: dict[str, QueueSpec] = {}
        #: The queue that each DLQ was asked for: a new version of it has a DLQ of its own.
        self._homes: dict[str, str] = {}

    def declare(self, queues: Sequence[QueueSpec]) -> None:
        self._specs |= {queue.name: queue for queue in queues}
        with self.inquiry() as inquiry:
            establish(inquiry, queues)

    def remove(self, queues: Sequence[QueueSpec]) -> None:
        made = {str(each): each for queue in queues for each in resources(queue)}
        with self.inquiry() as inquiry:
            for resource in made.values():
                if not isinstance(resource, Bind):
                    inquiry.delete(resource)

    @contextmanager
    def inquiry(self) -> Iterator[Inquiry]:
        """Connect for questions and changes to the topology."""
        with self._connected("topology") as connection:
            yield Inquiry(connection)

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

    def examine(self, queues: Sequence[QueueSpec], published: Sequence[Published]) -> list[Finding]:
        with self._connected("doctor") as connection:
            inquiry = Inquiry(connection)
            specs = [current(inquiry, queue) for queue in queues]
            return list(findings(gather(connection, specs, published), published))

    def levels(self, queues: Sequence[QueueSpec]) -> list[Level]:
        with self._connected("levels") as connection:
            inquiry = Inquiry(connection)
            return [level(inquiry, each) for each in queues]

    def publisher(self) -> RabbitmqPublisher:
        return RabbitmqPublisher(self.address, self._restore, self._homes)

    def _restore(self, queues: set[str]) -> None:
        with self.inquiry() as inquiry:
            restore(inquiry, [spec for name, spec in self._specs.items() if name in queues])

    def subscriber(self, queues: Sequence[str], prefetch: int) -> RabbitmqSubscriber:
        specs = [self._specs[name] for name in queues if name in self._specs]

        def prepare(connection: BrokerConnection) -> dict[str, str]:
            inquiry = Inquiry(connection)
            restore(inquiry, specs)
            return consumed(inquiry, queues, self._homes)

        return RabbitmqSubscriber(self.address, prefetch, prepare)

    def reply_box(self) -> RabbitmqReplyBox:
        return RabbitmqReplyBox(self.address)


def from_url(url: str) -> RabbitmqTransport:
    """Read amqp:// or amqps://."""
    return RabbitmqTransport(address_of(url))
