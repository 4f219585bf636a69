"""Messages that wait for their publisher confirm."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import msgspec

from django_eventbus.events.message import ROW, SUBSCRIPTION, Message
from django_eventbus.transports.contract import Address, Receipt
from django_eventbus.transports.rabbitmq.encoding import (
    encoded_properties,
    encoding_problem,
    method_frame,
    name_problem,
    publish_frames,
    size_problem,
)
from django_eventbus.transports.rabbitmq.topology.resources import reply_problem, target_of


class Batch:
    """Messages whose sender waits for their receipts."""

    def __init__(self, size: int) -> None:
        self.receipts: list[Receipt | None] = [None] * size
        self.done = threading.Event()
        self.error: Exception | None = None
        self._open = size
        #: The same as done.is_set(), but much faster.
        self._is_over = False

    def awaits(self, index: int) -> bool:
        return self.receipts[index] is None and not self._is_over

    def settle(self, index: int, receipt: Receipt) -> None:
        """Record the receipt of a message, unless it has one or the batch has ended."""
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


class PendingMessage(msgspec.Struct, gc=False):
    """One message that waits for its confirm. It is sent at most once per channel."""

    batch: Batch
    index: int
    exchange: str
    routing_key: str
    message: Message
    properties: bytes
    #: Why it cannot be sent, or "".
    problem: str
    is_returned: bool = False

    @property
    def identity(self) -> tuple[Any, ...]:
        """The values by which a returned message is recognized; basic.return has no delivery tag."""
        headers = self.message.headers
        row, subscription = headers.get(ROW), headers.get(SUBSCRIPTION)
        return self.exchange, self.routing_key, self.message.id, row, subscription

    @property
    def is_awaited(self) -> bool:
        return self.batch.awaits(self.index)

    def problem_with(self, frame_max: int) -> str:
        """Return why it cannot be sent over this connection, or ""."""
        return self.problem or size_problem(self.properties, frame_max)

    def frames(self, channel: int, frame_max: int) -> bytes:
        """Return the bytes that publish it on *channel*."""
        method = method_frame(channel, self.exchange, self.routing_key)
        return publish_frames(channel, method, self.properties, self.message.body, frame_max)

    def settle(self, receipt: Receipt) -> None:
        self.batch.settle(self.index, receipt)


def pending_message(batch: Batch, index: int, message: Message, address: Address) -> PendingMessage:
    """Encode *message*; a problem is reported when it is sent."""
    exchange, routing_key = target_of(address)
    problem, properties = name_problem(exchange, routing_key) or reply_problem(address), b""
    try:
        properties = encoded_properties(message)
    except Exception as error:
        # Any header may fail to encode, and must not fail the rest of the batch.
        problem = problem or encoding_problem(error)
    return PendingMessage(batch, index, exchange, routing_key, message, properties, problem)


def identity_of(exchange: str, routing_key: str, properties: Any) -> tuple[Any, ...]:
    """Return the identity of a returned message, as in PendingMessage.identity."""
    headers = properties.headers or {}
    row, subscription = headers.get(ROW), headers.get(SUBSCRIPTION)
    return exchange, routing_key, properties.message_id, row, subscription
