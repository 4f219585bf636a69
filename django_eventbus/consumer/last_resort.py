"""The last resort: park a message as it arrived if its outcome cannot be recorded."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Sequence

from django.db import connections

from django_eventbus.consumer.deliveries import ReadDelivery
from django_eventbus.dead_letters.parking import park_as_it_arrived
from django_eventbus.exceptions import RecordingFailed
from django_eventbus.models import DeadLetter, InboxRecord
from django_eventbus.outages import is_about_values, proven, use_of
from django_eventbus.subscriptions.outcomes import Park
from django_eventbus.subscriptions.subscription import Settlement, Subscription

logger = logging.getLogger("django_eventbus.consumer")

#: After the same error with this number of messages, the messages are not the reason.
_TOO_MANY = 3
#: An outcome after which a message needs no dead letter of its own.
_SETTLED = (InboxRecord.State.HANDLED, InboxRecord.State.SKIPPED, InboxRecord.State.PARKED)


class Breaker:
    """Opens if the same error at the same place fails different messages, without a success."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._place = ""
        self._message_ids: set[str] = set()

    def is_open_after(self, place: str, message_id: str) -> bool:
        with self._lock:
            if place != self._place:
                self._place, self._message_ids = place, set()
            if len(self._message_ids) < _TOO_MANY:
                self._message_ids.add(message_id)
            return len(self._message_ids) == _TOO_MANY

    def close(self) -> None:
        if self._message_ids:
            with self._lock:
                self._place, self._message_ids = "", set()


class LastResort:
    """Decides whether an error is about one message, and parks that message if it is."""

    def __init__(self) -> None:
        self.breaker = Breaker()

    def settle(
        self,
        delivery: ReadDelivery,
        subscriptions: Sequence[Subscription],
        using: str,
        error: Exception,
    ) -> list[Settlement]:
        """Park *delivery* for each subscription without an outcome. Raise RecordingFailed if not."""
        place, message = _place(error), delivery.message.identified()
        if not is_about_values(error) or self.breaker.is_open_after(place, message.id):
            raise RecordingFailed(place, operation=use_of(using)) from error
        logger.error("The outcome of %s cannot be recorded: %s.", message.id, place)
        try:
            if not subscriptions:
                return [_parked(delivery, None, using, error)]
            return [
                _parked(delivery, each, each.using, error)
                for each in subscriptions
                if not _is_settled(each, message.id)
            ]
        except Exception as second:
            raise RecordingFailed(_place(second), operation=use_of(using)) from second

    def note_success(self, settlements: Sequence[Settlement]) -> None:
        """Close the breaker if an outcome was recorded, and each one was."""
        if settlements and not any(map(_is_unrecorded, settlements)):
            self.breaker.close()


def _is_unrecorded(settlement: Settlement) -> bool:
    outcome = settlement.outcome
    return isinstance(outcome, Park) and outcome.kind == DeadLetter.Kind.UNRECORDED


def _is_settled(subscription: Subscription, message_id: str) -> bool:
    # The error may have come after the commit. A new connection: the old one may be the reason.
    connections[subscription.using].close()
    with proven(subscription.using):
        records = InboxRecord.objects.using(subscription.using)
        found = records.known(subscription.record_name, message_id)
    return found is not None and found.state in _SETTLED


def _parked(
    delivery: ReadDelivery, subscription: Subscription | None, using: str, error: Exception
) -> Settlement:
    name = subscription.record_name if subscription else ""
    with proven(using):
        park_as_it_arrived(
            delivery.message, error, subscription=name, queue=delivery.queue, using=using
        )
    sys.audit("eventbus.last_resort.parked")
    outcome = Park(kind=DeadLetter.Kind.UNRECORDED, reason=_place(error))
    return Settlement(subscription=subscription, outcome=outcome, error=error)


def _place(error: Exception) -> str:
    """Return the type of *error* and where it was raised, without its text."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {frames[-1].name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"
