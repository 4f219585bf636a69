"""A delivery whose message has been read."""

from __future__ import annotations

from typing import Any

from django_eventbus import formats
from django_eventbus.conf import conf
from django_eventbus.exceptions import Undecodable
from django_eventbus.messages import Message
from django_eventbus.transports.contract import Delivery


class ReadDelivery:
    """A delivery that knows what its message means, whatever its format."""

    message: Message

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery
        self.queue = delivery.queue
        self.is_redelivered = delivery.is_redelivered
        self.problem: Undecodable | None = None
        self.payload: Any = None
        message = delivery.message
        try:
            reading = formats.read(message, conf.max_body_bytes)
            self.message, self.payload = reading.message, reading.payload
        except Undecodable as error:
            self.message, self.problem = message, error

    def ack(self) -> None:
        self.delivery.ack()

    def release(self, after: float = 0) -> None:
        self.delivery.release(after)
