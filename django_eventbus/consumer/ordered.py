"""Ordered queues: a message waits in place until it is handled."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from datetime import datetime

from django.utils import timezone

from django_eventbus.consumer.consumer import Consumer
from django_eventbus.consumer.deliveries import KeptDelivery
from django_eventbus.events.message import KEY
from django_eventbus.outages import proven
from django_eventbus.redrive.held_keys import release_key
from django_eventbus.subscriptions.outcomes import Retry
from django_eventbus.subscriptions.subscription import Settlement
from django_eventbus.transports.contract import Delivery, Publisher


class OrderedConsumer(Consumer):
    """A consumer that settles each message before it receives the next."""

    def __init__(
        self,
        publisher: Publisher,
        dead_letter_queue: Callable[[str], str | None],
        stop: threading.Event,
    ) -> None:
        super().__init__(publisher, dead_letter_queue)
        self.stop = stop
        self._since = timezone.now()

    def consume(self, delivery: Delivery) -> list[Settlement]:
        """
        Settle *delivery* with all its retries; leave it unsettled if stopped.

        Raise Unavailable, with the delivery still unsettled, in an outage.
        """
        settlements: list[Settlement] = []
        retries, self._since = 0, timezone.now()
        while True:
            kept = KeptDelivery(delivery, retries)
            tried = super().consume(kept)
            settlements += tried
            _release_next(kept, tried)
            # A message that reaches no subscription has no record that counts its attempts.
            retries += any(isinstance(each.outcome, Retry) for each in tried)
            if kept.pause is None:
                return settlements
            sys.audit("eventbus.ordering.waiting")
            if self.stop.wait(kept.pause):
                return settlements

    def _tried_since(self, delivery: Delivery) -> datetime:
        return self._since


def _release_next(delivery: Delivery, settlements: Iterable[Settlement]) -> None:
    """Release the next dead letter that was held behind a settled one; the relay does this too."""
    key = delivery.message.text(KEY)
    for each in settlements:
        if key and delivery.message.round and each.subscription and each.subscription.holds_keys:
            using = each.subscription.using
            with proven(using):
                release_key(each.subscription.record_name, key, using)
