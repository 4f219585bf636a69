"""Put a message aside for a person: as a dead letter, or in the broker's DLQ."""

from __future__ import annotations

import sys
from collections.abc import Callable

from django_eventbus.conf import conf
from django_eventbus.dead_letters import cause_of, park
from django_eventbus.exceptions import BrokerUnavailable
from django_eventbus.formats import blamed
from django_eventbus.messages import (
    FINAL_ERROR,
    FINAL_KIND,
    FINAL_RETRY_COUNT,
    FINAL_STATUS_CODE,
    SUBSCRIPTION,
    Message,
    storable,
)
from django_eventbus.outcomes import Park
from django_eventbus.retries import describe
from django_eventbus.statuses import status_of
from django_eventbus.transports.contract import Confirmed, Outgoing, Publisher, Rejected, ToQueue

#: Characters of an error that a header carries: all headers together must fit one frame.
FINAL_ERROR_LIMIT = 500


class Parking:
    """Where PARK_TO says that messages are put aside."""

    def __init__(
        self, publisher: Publisher, dead_letter_queue: Callable[[str], str | None]
    ) -> None:
        self.publisher = publisher
        self.dead_letter_queue = dead_letter_queue

    def park(
        self,
        message: Message,
        outcome: Park,
        error: BaseException,
        *,
        subscription: str,
        queue: str,
        using: str,
    ) -> None:
        """Put *message* aside. Raise BrokerUnavailable if the broker does not confirm it."""
        facts = _facts(message, outcome, error, subscription)
        if not self._is_on_broker(message, queue, facts):
            cause = cause_of(outcome, error)
            park(message, cause, subscription=subscription, queue=queue, using=using)

    def _is_on_broker(self, message: Message, queue: str, facts: dict[str, object]) -> bool:
        dlq = self.dead_letter_queue(queue)
        if conf.park_to != "broker" or dlq is None:
            return False
        copy = blamed(message.identified().copy_for(queue, **facts), str(facts[FINAL_ERROR]))
        outgoing = Outgoing(address=ToQueue(queue=dlq), message=copy)
        (receipt,) = self.publisher.publish([outgoing])
        if not isinstance(receipt, Confirmed | Rejected):
            raise BrokerUnavailable(f"{dlq} did not take a message that is to be parked.")
        sys.audit("eventbus.parking.published")
        # What the broker can never take, such as headers beyond a frame, is kept all the same.
        return isinstance(receipt, Confirmed)


def _facts(
    message: Message, outcome: Park, error: BaseException, subscription: str
) -> dict[str, object]:
    facts: dict[str, object] = {
        FINAL_ERROR: storable(describe(error), FINAL_ERROR_LIMIT),
        FINAL_KIND: outcome.kind,
        FINAL_RETRY_COUNT: message.attempt - 1,
    }
    if status := status_of(error):
        facts[FINAL_STATUS_CODE] = status
    if subscription:
        facts[SUBSCRIPTION] = subscription
    return facts
