"""Put messages into queue tables. A confirm is the insert itself."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from django_eventbus.messages import Message
from django_eventbus.models import Binding, QueuedMessage
from django_eventbus.outages import proven
from django_eventbus.patterns import matches
from django_eventbus.transports.contract import (
    Confirmed,
    Dispatch,
    Outgoing,
    Receipt,
    Receipts,
    ToExchange,
    ToQueue,
    ToReply,
    ToTier,
    Unroutable,
)

Bindings = Mapping[str, Sequence[tuple[str, str]]]
Place = tuple[str, Message, datetime]


class DatabasePublisher:
    """
    Publishes into the tables of the database *using*.

    In the relay's transaction if that is on the same database: then sent and marked are one.
    """

    def __init__(self, using: str) -> None:
        self.using = using

    def open(self) -> None:
        """Nothing to open: connections belong to Django."""

    def prepare(self, batch: Sequence[Outgoing]) -> Dispatch:
        def send() -> Receipts:
            receipts = self.publish(batch)
            return lambda: receipts

        return send

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
