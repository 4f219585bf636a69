"""Record a failed attempt: its outcome, its history, and what has to be sent for it."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from django_eventbus.dead_letters import ERROR_LIMIT, traceback_of
from django_eventbus.durations import label
from django_eventbus.messages import NOT_BEFORE, RETRY_COUNT, SUBSCRIPTION, Message, storable
from django_eventbus.models import Attempt, InboxRecord
from django_eventbus.outbox import address_again
from django_eventbus.outcomes import Defer, Duplicate, Outcome, Park, Retry, Skipped
from django_eventbus.parking import Parking
from django_eventbus.retries import Decision, describe, words_of
from django_eventbus.subscriptions import Subscription

_SHORTEST_DEFERRAL = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An attempt that did not end well. Recorded in the caller's transaction."""

    subscription: Subscription
    message: Message
    queue: str
    error: BaseException
    began_at: datetime
    seconds: float

    def record(self, record: InboxRecord, outcome: Decision, parking: Parking) -> None:
        """Write *outcome* to the inbox *record*, and everything that goes with it."""
        match outcome:
            case Skipped(reason=reason):
                record.skipped(self.message, reason)
            case Defer(until=until):
                self._defer(record, until)
            case Retry(delay=delay, by_tier=by_tier):
                # An ordered message stays where it is: nothing behind it may come first.
                is_sent = by_tier and not self.subscription.ordered
                record.retrying(self.message, describe(self.error), delay, is_sent)
                self._write_attempt(label(delay))
                if not by_tier and not self.subscription.ordered:
                    due_at = timezone.now() + timedelta(seconds=delay)
                    self._send_later(due_at, **{RETRY_COUNT: self.message.attempt})
            case Park():
                # First: what is recorded as parked and lies nowhere would never be seen again.
                self._park(outcome, parking)
                record.parked(self.message, outcome.reason)
                self._write_attempt("")

    def _defer(self, record: InboxRecord, until: datetime) -> None:
        now = timezone.now()
        if until <= now:
            # Never at once: a handler that names a time gone by would go round and round.
            until = now + _SHORTEST_DEFERRAL
        record.deferred(self.message, describe(self.error), until)
        if self.subscription.ordered:
            return
        # It came back early by the relay's clock, which is ahead of ours by as much.
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
            error=storable(words_of(self.error), ERROR_LIMIT),
            traceback=traceback_of(self.error),
        )

    def _send_later(self, due_at: datetime, **headers: int) -> None:
        name = self.subscription.record_name
        address_again(
            self.message.copy_for(self.queue, **{SUBSCRIPTION: name}, **headers),
            queue=self.queue,
            subscription=name,
            due_at=due_at,
            using=self.subscription.using,
        )


def is_closed(outcome: Outcome) -> bool:
    """Whether there is nothing left to be done about the message, and nothing was done just now."""
    if isinstance(outcome, Duplicate):
        return outcome.state in (InboxRecord.State.HANDLED, InboxRecord.State.SKIPPED)
    return isinstance(outcome, Skipped)
