"""Record a failed attempt, and park the message in the database or in the broker's DLQ."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from django_eventbus.conf import conf
from django_eventbus.dead_letters.parking import (
    ERROR_LIMIT,
    Discarded,
    park,
    parking_cause,
    traceback_of,
)
from django_eventbus.durations import label
from django_eventbus.events.formats import blamed
from django_eventbus.events.message import (
    FINAL_ERROR,
    FINAL_KIND,
    FINAL_RETRY_COUNT,
    FINAL_STATUS_CODE,
    NOT_BEFORE,
    RETRY_COUNT,
    SUBSCRIPTION,
    Message,
)
from django_eventbus.events.text import storable
from django_eventbus.exceptions import BrokerUnavailable
from django_eventbus.models import Attempt, InboxRecord
from django_eventbus.outbox.outbox_rows import write_addressed_row
from django_eventbus.subscriptions.outcomes import Defer, Duplicate, Outcome, Park, Retry, Skipped
from django_eventbus.subscriptions.retries import Decision, describe, error_text, status_of
from django_eventbus.subscriptions.subscription import Subscription
from django_eventbus.transports.contract import Confirmed, Outgoing, Publisher, Rejected, ToQueue

#: The maximum length of an error in a header: all headers together must fit one frame.
FINAL_ERROR_LIMIT = 500

_SHORTEST_DEFERRAL = timedelta(seconds=1)


class Parking:
    """Parks messages in the database or on the broker, as PARK_TO says."""

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
        """Park *message*. Raise BrokerUnavailable if the broker does not confirm it."""
        facts = _facts(message, outcome, error, subscription)
        if not self._is_on_broker(message, queue, facts):
            cause = parking_cause(outcome, error)
            park(message, cause, subscription=subscription, queue=queue, using=using)

    def _is_on_broker(self, message: Message, queue: str, facts: dict[str, object]) -> bool:
        dlq = self.dead_letter_queue(queue)
        if conf.park_to != "broker" or dlq is None:
            return False
        copy = blamed(message.identified().copy_for(queue, **facts), str(facts[FINAL_ERROR]))
        outgoing = Outgoing(address=ToQueue(queue=dlq), message=copy)
        (receipt,) = self.publisher.publish([outgoing])
        if not isinstance(receipt, Confirmed | Rejected):
            raise BrokerUnavailable(f"The broker did not accept a parked message for {dlq}.")
        sys.audit("eventbus.parking.published")
        # A message that the broker rejects, such as one with too long headers, is kept in the database.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failed attempt. Recorded in the transaction of the caller."""

    subscription: Subscription
    message: Message
    queue: str
    error: BaseException
    began_at: datetime
    seconds: float

    def record(self, record: InboxRecord, outcome: Decision, parking: Parking) -> None:
        """Write *outcome* to the inbox *record*, with the attempt and the retry or dead letter."""
        match outcome:
            case Skipped() if isinstance(self.error, Discarded):
                record.skipped(self.message, self.error.detail, self.error.skip_reason)
            case Skipped(reason=reason):
                record.skipped(self.message, reason)
            case Defer(until=until):
                self._defer(record, until)
            case Retry(delay=delay, by_tier=by_tier):
                # An ordered message stays in its queue: no later message may overtake it.
                is_sent = by_tier and not self.subscription.ordered
                record.retrying(self.message, describe(self.error), delay, is_sent)
                self._write_attempt(label(delay))
                if not by_tier and not self.subscription.ordered:
                    due_at = timezone.now() + timedelta(seconds=delay)
                    self._send_later(due_at, **{RETRY_COUNT: self.message.attempt})
            case Park():
                # First: a message that is recorded as parked but not stored would be lost.
                self._park(outcome, parking)
                record.parked(self.message, outcome.reason)
                self._write_attempt("")

    def _defer(self, record: InboxRecord, until: datetime) -> None:
        now = timezone.now()
        if until <= now:
            # Never at once: a handler that always names a past time would loop without end.
            until = now + _SHORTEST_DEFERRAL
        record.deferred(self.message, describe(self.error), until)
        if self.subscription.ordered:
            return
        # It came back too early, because the relay's clock is ahead of ours by this difference.
        ahead = until - now if self.message.not_before == until else timedelta(0)
        self._send_later(until + ahead, **{NOT_BEFORE: int(until.timestamp() * 1000)})

    def _park(self, outcome: Park, parking: Parking) -> None:
        parking.park(
            self.message,
            outcome,
            self.error,
            subscription=self.subscription.record_name,
            queue=self.queue,
            using=self.subscription.using,
        )

    def _write_attempt(self, tier: str) -> None:
        Attempt.objects.using(self.subscription.using).create(
            subscription=self.subscription.record_name,
            message_id=self.message.id,
            round=self.message.round,
            attempt=self.message.attempt,
            started_at=self.began_at,
            duration=self.seconds,
            host=socket.gethostname()[:255],
            tier=tier,
            error_type=storable(type(self.error).__qualname__, 255),
            error=storable(error_text(self.error), ERROR_LIMIT),
            traceback=traceback_of(self.error),
        )

    def _send_later(self, due_at: datetime, **headers: int) -> None:
        name = self.subscription.record_name
        write_addressed_row(
            self.message.copy_for(self.queue, **{SUBSCRIPTION: name}, **headers),
            queue=self.queue,
            subscription=name,
            due_at=due_at,
            using=self.subscription.using,
        )


def is_closed(outcome: Outcome) -> bool:
    """Whether the message was handled or skipped before, or is skipped now."""
    if isinstance(outcome, Duplicate):
        return outcome.state in (InboxRecord.State.HANDLED, InboxRecord.State.SKIPPED)
    return isinstance(outcome, Skipped)
