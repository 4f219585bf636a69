"""Deliveries: decoded, kept in place, or from the DLQ of a broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from django_eventbus.conf import conf
from django_eventbus.dead_letters.broker_deaths import with_original_route
from django_eventbus.events import formats
from django_eventbus.events.message import RETRY_COUNT, Message
from django_eventbus.exceptions import Undecodable
from django_eventbus.transports.contract import Delivery


class ReadDelivery:
    """A delivery whose message is decoded from its wire format."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadDelivery:
    """A delivery from a DLQ, presented as a delivery of its original queue."""

    delivery: Delivery
    queue: str

    @property
    def message(self) -> Message:
        # Without reply_to: an answer to a ping in a DLQ would say that the queue is consumed.
        return replace(with_original_route(self.delivery.message, self.queue), reply_to="")

    @property
    def is_redelivered(self) -> bool:
        return self.delivery.is_redelivered

    def ack(self) -> None:
        self.delivery.ack()

    def release(self, after: float = 0) -> None:
        self.delivery.release(after)


class KeptDelivery:
    """A delivery that is not returned while it waits, so that no later message overtakes it."""

    def __init__(self, delivery: Delivery, retries: int) -> None:
        self.queue = delivery.queue
        self.is_redelivered = delivery.is_redelivered
        #: Seconds until it is tried again; None if it is settled.
        self.pause: float | None = None
        self._delivery = delivery
        self._retries = retries

    @property
    def message(self) -> Message:
        message = self._delivery.message
        if not self._retries:
            return message
        retries = message.number(RETRY_COUNT) + self._retries
        return replace(message, headers={**message.headers, RETRY_COUNT: retries})

    def ack(self) -> None:
        self._delivery.ack()

    def release(self, after: float = 0) -> None:
        self.pause = after
