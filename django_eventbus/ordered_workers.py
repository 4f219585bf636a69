"""A handler thread over an ordered queue."""

from __future__ import annotations

import threading
from collections.abc import Callable

from django_eventbus.exceptions import Unavailable
from django_eventbus.ordering import OrderedConsumer
from django_eventbus.transports.contract import Delivery, Transport
from django_eventbus.workers import ConsumerWorkers


class OrderedWorkers(ConsumerWorkers):
    """One loop, for one thread: a second would take the second message before the first is done."""

    def __init__(
        self,
        transport: Transport,
        queue: str,
        stop: threading.Event,
        *,
        is_idle: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__(transport, [queue], stop, prefetch=1, is_idle=is_idle)
        publisher = self.consumer.publisher
        self.consumer = OrderedConsumer(publisher, transport.dead_letter_queue, stop)
        self._interrupted: Delivery | None = None

    def _received(self) -> Delivery | None:
        # After an outage it goes on with what it had: given back, it might come after the next.
        interrupted, self._interrupted = self._interrupted, None
        return interrupted or super()._received()

    def _consume(self, delivery: Delivery) -> None:
        try:
            super()._consume(delivery)
        except Unavailable:
            self._interrupted = delivery
            raise
