"""Take the deliveries of an ordered queue to their outcome, one after another."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from datetime import datetime

from django.utils import timezone
from msgspec.structs import replace

from django_eventbus.consumer import Consumer
from django_eventbus.held_keys import release_key
from django_eventbus.messages import KEY, RETRY_COUNT, Message
from django_eventbus.outages import proven
from django_eventbus.outcomes import Retry
from django_eventbus.settlements import Settlement
from django_eventbus.transports.contract import Delivery, Publisher


class KeptDelivery:
    """A delivery that is not given back while it waits: what is behind it would come first."""

    def __init__(self, delivery: Delivery, retries: int) -> None:
        self.queue = delivery.queue
        self.is_redelivered = delivery.is_redelivered
        #: Seconds to wait before it is tried again; None: it is settled.
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


class OrderedConsumer(Consumer):
    """A consumer that waits in place: no message is looked at before the one ahead is settled."""

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
        Settle *delivery*, however often it is tried; if told to stop, leave it unsettled.

        Raise Unavailable, with the delivery still unsettled, in an outage.
        """
        settlements: list[Settlement] = []
        retries, self._since = 0, timezone.now()
        while True:
            kept = KeptDelivery(delivery, retries)
            tried = super().consume(kept)
            settlements += tried
            _release_next(kept, tried)
            # A message that reaches no subscription has no record to count its attempts in.
            retries += any(isinstance(each.outcome, Retry) for each in tried)
            if kept.pause is None:
                return settlements
            sys.audit("eventbus.ordering.waiting")
            if self.stop.wait(kept.pause):
                return settlements

    def _tried_since(self, delivery: Delivery) -> datetime:
        return self._since


def _release_next(delivery: Delivery, settlements: Iterable[Settlement]) -> None:
    """Let those go that were held behind what is settled now; the relay looks for them too."""
    key = delivery.message.text(KEY)
    for each in settlements:
        if key and delivery.message.round and each.subscription and each.subscription.holds_keys:
            using = each.subscription.using
            with proven(using):
                release_key(each.subscription.record_name, key, using)
