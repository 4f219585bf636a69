"""Messages on their way to the broker, and what is known of each."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import msgspec

from django_eventbus.messages import ROW, SUBSCRIPTION, Message
from django_eventbus.transports.contract import Address, Receipt
from django_eventbus.transports.rabbitmq.frames import method_frame, publish_frames
from django_eventbus.transports.rabbitmq.properties import (
    encoded_properties,
    encoding_problem,
    name_problem,
    size_problem,
)
from django_eventbus.transports.rabbitmq.topology import reply_problem, target_of


class Batch:
    """Messages whose sender waits, and what is known of each."""

    def __init__(self, size: int) -> None:
        self.receipts: list[Receipt | None] = [None] * size
        self.done = threading.Event()
        self.error: Exception | None = None
        self._open = size
        #: As done says, in a tenth of the time.
        self._is_over = False

    def awaits(self, index: int) -> bool:
        return self.receipts[index] is None and not self._is_over

    def settle(self, index: int, receipt: Receipt) -> None:
        """Note what became of a message, unless that is known or nobody waits for it any more."""
        if self.awaits(index):
            self.receipts[index] = receipt
            self._open -= 1
            if not self._open:
                self._end()

    def fail(self, error: Exception) -> None:
        if not self._is_over:
            self.error = error
            self._end()

    def _end(self) -> None:
        self._is_over = True
        self.done.set()

    def all_receipts(self) -> Sequence[Receipt]:
        return [receipt for receipt in self.receipts if receipt is not None]


class Parcel(msgspec.Struct, gc=False):
    """One message on its way: sent at most once per channel."""

    batch: Batch
    index: int
    exchange: str
    routing_key: str
    message: Message
    properties: bytes
    #: Why it cannot be sent at all.
    problem: str
    is_returned: bool = False

    @property
    def identity(self) -> tuple[Any, ...]:
        """What basic.return tells of a message; it has no delivery tag."""
        headers = self.message.headers
        row, subscription = headers.get(ROW), headers.get(SUBSCRIPTION)
        return self.exchange, self.routing_key, self.message.id, row, subscription

    @property
    def is_awaited(self) -> bool:
        return self.batch.awaits(self.index)

    def problem_with(self, frame_max: int) -> str:
        """Say why it cannot be sent over this connection, or return ""."""
        return self.problem or size_problem(self.properties, frame_max)

    def frames(self, channel: int, frame_max: int) -> bytes:
        """Return what publishing it on *channel* writes to the socket."""
        method = method_frame(channel, self.exchange, self.routing_key)
        return publish_frames(channel, method, self.properties, self.message.body, frame_max)

    def settle(self, receipt: Receipt) -> None:
        self.batch.settle(self.index, receipt)


def parcel_of(batch: Batch, index: int, message: Message, address: Address) -> Parcel:
    """Encode *message*; what has no form is told when it is to be sent."""
    exchange, routing_key = target_of(address)
    problem, properties = name_problem(exchange, routing_key) or reply_problem(address), b""
    try:
        properties = encoded_properties(message)
    except Exception as error:
        # Whatever a header of ours or of a stranger holds: it is this one's fault alone.
        problem = problem or encoding_problem(error)
    return Parcel(batch, index, exchange, routing_key, message, properties, problem)


def identity_of(exchange: str, routing_key: str, properties: Any) -> tuple[Any, ...]:
    """Return what names a message that came back, as Parcel.identity does."""
    headers = properties.headers or {}
    row, subscription = headers.get(ROW), headers.get(SUBSCRIPTION)
    return exchange, routing_key, properties.message_id, row, subscription
