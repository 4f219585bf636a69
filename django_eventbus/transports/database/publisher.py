"""Publish into the tables of the database transport, and wait for replies there."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone
from msgspec.structs import replace

from django_eventbus.conf import conf
from django_eventbus.events.message import Message, uuid7
from django_eventbus.events.routing import matches
from django_eventbus.exceptions import BrokerUnavailable
from django_eventbus.models import Binding, QueuedMessage
from django_eventbus.outages import proven
from django_eventbus.transports.contract import (
    Confirmed,
    Outgoing,
    PendingBatch,
    Receipt,
    ToExchange,
    ToQueue,
    ToReply,
    ToTier,
    Unroutable,
)

Bindings = Mapping[str, Sequence[tuple[str, str]]]
Place = tuple[str, Message, datetime]

#: Seconds between two reads of the answers.
_PAUSE = 0.05


class DatabasePublisher:
    """
    Publishes into the tables of the database *using*.

    If the outbox is in the same database, sending and marking are one transaction.
    """

    def __init__(self, using: str) -> None:
        self.using = using

    def open(self) -> None:
        """Nothing to open: connections belong to Django."""

    def prepare(self, batch: Sequence[Outgoing]) -> PendingBatch:
        return DatabaseBatch(self, batch)

    def publish(self, batch: Sequence[Outgoing]) -> Sequence[Receipt]:
        with proven(self.using), transaction.atomic(using=self.using):
            bindings = self._bindings(batch)
            places = [self._places(outgoing, bindings) for outgoing in batch]
            QueuedMessage.objects.using(self.using).put(
                each for placed in places for each in placed
            )
        sys.audit("eventbus.database.published")
        return [Confirmed() if placed else Unroutable() for placed in places]

    def _places(self, outgoing: Outgoing, bindings: Bindings) -> list[Place]:
        now = timezone.now()
        match outgoing.address:
            case ToQueue(queue=queue):
                return [(queue, outgoing.message, now)]
            case ToTier(queue=queue, delay=delay):
                return [(queue, outgoing.message, now + timedelta(seconds=delay))]
            case ToReply(reply_to=box):
                is_open = QueuedMessage.objects.using(self.using).is_box_open(box)
                return [(box, outgoing.message, now)] if is_open else []
            case ToExchange(exchange=exchange, routing_key=routing_key):
                bound = bindings.get(exchange, ())
                queues = {queue for queue, pattern in bound if matches(pattern, routing_key)}
                return [(queue, outgoing.message, now) for queue in sorted(queues)]

    def _bindings(self, batch: Sequence[Outgoing]) -> Bindings:
        addresses = (outgoing.address for outgoing in batch)
        exchanges = {each.exchange for each in addresses if isinstance(each, ToExchange)}
        return {
            exchange: list(
                Binding.objects.using(self.using)
                .filter(exchange=exchange)
                .values_list("queue", "pattern")
            )
            for exchange in exchanges
        }

    def close(self) -> None:
        """Nothing to close: connections belong to Django."""


class DatabaseBatch:
    """A batch for the tables, which confirm it at once."""

    def __init__(self, publisher: DatabasePublisher, batch: Sequence[Outgoing]) -> None:
        self._publisher = publisher
        self._batch = batch
        self._receipts: Sequence[Receipt] = []
        self._error: BrokerUnavailable | None = None

    def send(self) -> None:
        try:
            self._receipts = self._publisher.publish(self._batch) if self._batch else []
        except BrokerUnavailable as error:
            self._error = error

    def receipts(self) -> Sequence[Receipt]:
        if self._error:
            raise self._error
        return self._receipts


class DatabaseReplyBox:
    """A temporary queue for answers; later answers are dropped."""

    def __init__(self, using: str) -> None:
        self.using = using
        self.name = f"reply.{uuid7()}"
        with proven(using):
            QueuedMessage.objects.using(using).open_box(self.name)

    def ask(self, address: ToExchange, message: Message) -> Receipt:
        asking = Outgoing(address=address, message=replace(message, reply_to=self.name))
        receipts: Sequence[Receipt] = DatabasePublisher(self.using).publish([asking])
        return receipts[0]

    def receive(self, timeout: float) -> Message | None:
        deadline = time.monotonic() + timeout
        while True:
            with proven(self.using):
                row = QueuedMessage.objects.using(self.using).lease(
                    self.name, conf.broker_options.lease
                )
                if row and row.ack():
                    return row.message()
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(left, _PAUSE))

    def close(self) -> None:
        with proven(self.using):
            QueuedMessage.objects.using(self.using).close_box(self.name)
