"""Messages on their way to the broker, and what is known of each."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from django_eventbus.messages import ROW, SUBSCRIPTION
from django_eventbus.transports.contract import Receipt
from django_eventbus.transports.rabbitmq.frames import publish_frames, publish_method


@dataclass(slots=True)
class Batch:
    """Messages whose sender waits, and what is known of each."""

    receipts: list[Receipt | None]
    open: int
    done: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None

    def settle(self, index: int, receipt: Receipt) -> None:
        if self.receipts[index] is None:
            self.receipts[index] = receipt
            self.open -= 1
        if not self.open:
            self.done.set()

    def fail(self, error: Exception) -> None:
        if not self.done.is_set():
            self.error = error
            self.done.set()


@dataclass(slots=True)
class Parcel:
    """One message on its way: sent at most once per channel."""

    batch: Batch
    index: int
    exchange: str
    routing_key: str
    properties: Any
    body: bytes
    #: Why it cannot be sent at all.
    problem: str = ""
    is_returned: bool = False

    @property
    def identity(self) -> tuple[Any, ...]:
        """What basic.return tells of a message; it has no delivery tag."""
        return identity_of(self.exchange, self.routing_key, self.properties)

    @property
    def is_awaited(self) -> bool:
        return self.batch.receipts[self.index] is None and not self.batch.done.is_set()

    def frames(self, channel: int, frame_max: int) -> bytes:
        """Return what publishing it on *channel* writes to the socket."""
        method = publish_method(self.exchange, self.routing_key)
        properties = b"".join(self.properties.encode())
        return publish_frames(channel, method, properties, self.body, frame_max)

    def settle(self, receipt: Receipt) -> None:
        if self.is_awaited:
            self.batch.settle(self.index, receipt)


def identity_of(exchange: str, routing_key: str, properties: Any) -> tuple[Any, ...]:
    headers = properties.headers or {}
    row, subscription = headers.get(ROW), headers.get(SUBSCRIPTION)
    return exchange, routing_key, properties.message_id, row, subscription
