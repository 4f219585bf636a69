"""Handle once: the inbox record and the handler's writes in one transaction."""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.db import connections, transaction
from django.utils import timezone

from django_eventbus.conf import conf
from django_eventbus.consumer.failures import Failure, Parking, is_closed
from django_eventbus.consumer.handler_run import (
    CommitMarker,
    Isolation,
    as_next_attempt,
    require_key_not_held,
    require_usable_transaction,
    time_limit,
)
from django_eventbus.dead_letters.fingerprints import last_project_line
from django_eventbus.dead_letters.parking import (
    Discarded,
    heal,
    raise_if_discarded,
    raise_if_restored,
)
from django_eventbus.events.event import cause, caused_by
from django_eventbus.events.message import Message
from django_eventbus.exceptions import Busy, NotCommitted, StartedTooOften, TooEarly, Unavailable
from django_eventbus.models import DeadLetter, InboxMark, InboxRecord
from django_eventbus.outages import (
    is_about_values,
    is_away,
    is_worth_running_again,
    proven,
    unavailable,
)
from django_eventbus.subscriptions.outcomes import Duplicate, Handled, Outcome
from django_eventbus.subscriptions.retries import Decision, DecisionTime, decide
from django_eventbus.subscriptions.subscription import Arrival, Settlement, Subscription, policy_for

logger = logging.getLogger("django_eventbus.consumer")

#: The maximum number of runs if the database rolled the transaction back.
_RUNS = 4
#: From this number of unfinished starts on, a message runs alone to find the one that crashes.
_SUSPECT = 3


class Inbox:
    """Handles messages once. One per process; safe to use from many threads."""

    def __init__(self, parking: Parking) -> None:
        self.parking = parking
        self.isolation = Isolation()
        #: Starts that were counted before an outage interrupted them, and must be undone.
        self.starts_to_undo: deque[tuple[Subscription, Message]] = deque()

    def handle_once(self, subscription: Subscription, arrival: Arrival) -> Settlement:
        """Run the handler unless the inbox has a final record; record the outcome."""
        self._undo_starts()
        message = as_next_attempt(subscription, arrival.message)
        if isinstance(message, Duplicate):
            return Settlement(subscription=subscription, outcome=message)
        run = _Run(self.parking, subscription, replace(arrival, message=message))
        # Around the transaction, not only the handler: on_commit hooks publish too.
        with caused_by(cause.get()), self._admitted(run):
            # Counted after admission: a message that waits while another one kills the process
            # must not count as started.
            outcome = run.count_start() if arrival.is_redelivered else None
            try:
                outcome = outcome or run.attempt()
            except (Busy, Unavailable):
                if arrival.is_redelivered:
                    self.starts_to_undo.append((subscription, message))
                raise
        return run.settlement(outcome)

    def _admitted(self, run: _Run) -> AbstractContextManager[None]:
        """Run together with others, or alone if the message may have killed a process."""
        if not run.arrival.is_redelivered:
            return self.isolation.together()
        is_suspect = run.earlier_starts() + 1 >= min(_SUSPECT, conf.start_limit)
        return self.isolation.alone() if is_suspect else self.isolation.together()

    def _undo_starts(self) -> None:
        while self.starts_to_undo:
            subscription, message = self.starts_to_undo.popleft()
            try:
                with proven(subscription.using), transaction.atomic(using=subscription.using):
                    _claimed(subscription, "", message).undo_start()
            except (Busy, Unavailable):
                self.starts_to_undo.append((subscription, message))
                return


class _Run:
    """The handling of one message by one subscription."""

    def __init__(self, parking: Parking, subscription: Subscription, arrival: Arrival) -> None:
        self.parking = parking
        self.subscription = subscription
        self.using = subscription.using
        self.arrival = arrival
        self.message = arrival.message
        self.error: BaseException | None = None
        self.event: Any = None
        self.began_at = timezone.now()
        self.began = time.monotonic()

    def earlier_starts(self) -> int:
        """Return the number of unfinished starts of the message."""
        with proven(self.using):
            record = self._known()
        return record.started if record else 0

    def count_start(self) -> Outcome | None:
        """Count a start; return an outcome if the handler must not run."""
        with proven(self.using), transaction.atomic(using=self.using, durable=True):
            record = self._claim(InboxRecord.State.STARTED)
            if answer := record.answer_to(self.message):
                return answer
            started = record.count_start()
        if started > conf.start_limit:
            return self._record(StartedTooOften(_start_limit_text(started - 1)))
        sys.audit("eventbus.inbox.started")
        return None

    def attempt(self) -> Outcome:
        """Run the handler, again if the database rolled it back; record a failure."""
        is_atomic = self.subscription.atomic
        handle = self._handle_in_transaction if is_atomic else self._handle_without_transaction
        # Without a transaction nothing was rolled back, so the handler must not run again at once.
        for _ in range(_RUNS if is_atomic else 1):
            try:
                return handle()
            except (Busy, Unavailable):
                raise
            # The only place that catches any error of a handler. SystemExit too: it would end
            # the thread and leave the message unsettled.
            except BaseException as error:
                failure = error
                if not self._was_undone(error):
                    break
        sys.audit("eventbus.inbox.failed")
        return self._record(failure)

    def settlement(self, outcome: Outcome) -> Settlement:
        """Return *outcome* with the error, the event and the duration of the run."""
        if self.message.round and is_closed(outcome):
            # Not open dead letters: a person has restored them, and they must be re-driven.
            self._heal(DeadLetter.AWAITED)
        return Settlement(
            subscription=self.subscription,
            outcome=outcome,
            message=self.message,
            error=self.error,
            event=self.event,
            seconds=time.monotonic() - self.began,
        )

    def _was_undone(self, error: BaseException) -> bool:
        if not is_worth_running_again(error):
            return False
        if is_away(self.using):
            raise unavailable(self.using, error) from error
        connections[self.using].close_if_unusable_or_obsolete()
        return True

    def _handle_in_transaction(self) -> Outcome:
        marker = CommitMarker(self.using)
        try:
            with transaction.atomic(using=self.using, durable=True):
                marker.register()
                if answer := self._claim_as_handled():
                    return answer
                self._call_handler()
                sys.audit("eventbus.inbox.called")
                require_usable_transaction(self.using)
        except Exception as error:
            # Raised by an on_commit hook of the handler: the transaction stands.
            if not marker.has_fired:
                raise
            name, kind = self.subscription.name, type(error).__name__
            logger.error(
                "An on_commit hook of %s raised %s: %s", name, kind, last_project_line(error)
            )
        if not marker.has_fired:
            raise NotCommitted(
                "the handler returned, but its transaction was rolled back: it caught a "
                "database error (wrap the statement in transaction.atomic()), called "
                "set_rollback(), or closed the connection"
            )
        sys.audit("eventbus.inbox.committed")
        return Handled()

    def _handle_without_transaction(self) -> Outcome:
        record = self._known()
        if record and (answer := record.answer_to(self.message)):
            return answer
        self._raise_if_too_old(record)
        self._raise_if_discarded()
        require_key_not_held(self.subscription, self.message)
        self._call_handler()
        sys.audit("eventbus.inbox.called")
        with transaction.atomic(using=self.using, durable=True):
            record = self._claim(InboxRecord.State.HANDLED)
            if answer := record.answer_to(self.message):
                return answer
            self._mark_handled(record)
        sys.audit("eventbus.inbox.committed")
        return Handled()

    def _claim_as_handled(self) -> Duplicate | None:
        record = self._claim(InboxRecord.State.HANDLED)
        if answer := record.answer_to(self.message):
            return answer
        self._raise_if_too_old(record)
        require_key_not_held(self.subscription, self.message)
        if not self._mark_handled(record):
            # The dead letter may have been discarded. Checked last, because this is rare.
            self._raise_if_discarded()
        return None

    def _mark_handled(self, record: InboxRecord) -> bool:
        """Record the message as handled; return False if its dead letter could not be healed."""
        if not record.is_new:
            record.handled(self.message)
        return (record.is_new and not self.message.round) or self._heal()

    def _heal(self, states: tuple[str, ...] = DeadLetter.WAITING) -> bool:
        name = self.subscription.record_name
        return heal(self.message, name, states=states, using=self.using)

    def _raise_if_discarded(self) -> None:
        if self.message.round:
            raise_if_discarded(self.message, queue=self.arrival.queue, using=self.using)

    def _known(self) -> InboxRecord | None:
        records = InboxRecord.objects.using(self.using)
        return records.known(self.subscription.record_name, self.message.id)

    def _claim(self, state: str) -> InboxRecord:
        return _claimed(self.subscription, self.arrival.queue, self.message, state)

    def _raise_if_too_old(self, record: InboxRecord | None) -> None:
        if record and not record.is_new and record.state != InboxRecord.State.STARTED:
            return
        # Checked after the insert: pruning moves the mark before it deletes.
        sent_at = self.message.last_sent_at
        if sent_at and sent_at <= self.began_at - timedelta(minutes=1):
            InboxMark.objects.using(self.using).raise_if_older(sent_at)

    def _call_handler(self) -> None:
        due = self.message.not_before
        if due and due > timezone.now():
            raise TooEarly(until=due)
        self.event = self.subscription.event(self.message, self.arrival.payload)
        cause.set(self.event.meta)
        try:
            with time_limit(self.subscription):
                self.subscription.handle(self.event)
        except (Busy, Unavailable) as error:
            # Raised by a handler, these would count as an outage and be retried without end.
            raise RuntimeError(f"the handler raised {type(error).__name__}") from error

    def _record(self, error: BaseException) -> Outcome:
        try:
            return self._record_once(error)
        except (Busy, Unavailable):
            raise
        except Exception as problem:
            if not is_about_values(problem):
                raise
        # Some headers can be received, but not recorded.
        self.message = self.message.stripped()
        return self._record_once(error)

    def _record_once(self, error: BaseException) -> Outcome:
        with proven(self.using), transaction.atomic(using=self.using, durable=True):
            record = self._claim(InboxRecord.State.STARTED)
            if answer := record.answer_to(self.message):
                return answer
            if isinstance(error, Discarded):
                raise_if_restored(self.message, queue=self.arrival.queue, using=self.using)
            outcome = self._decide(error, record)
            self._failure(error).record(record, outcome, self.parking)
        self.error = error
        sys.audit("eventbus.inbox.recorded")
        return outcome

    def _failure(self, error: BaseException) -> Failure:
        return Failure(
            subscription=self.subscription,
            message=self.message,
            queue=self.arrival.queue,
            error=error,
            began_at=self.began_at,
            seconds=time.monotonic() - self.began,
        )

    def _decide(self, error: BaseException, record: InboxRecord) -> Decision:
        policy = policy_for(self.message, self.subscription)
        since = max(record.created_at, self.message.redriven_at or record.created_at)
        limit = conf.ordered_block if self.subscription.ordered else conf.defer_limit
        latest = since + timedelta(seconds=limit)
        when = DecisionTime(now=timezone.now(), since=since, latest=latest)
        return decide(error, self.message.attempt, policy, when)


def _start_limit_text(starts: int) -> str:
    return (
        f"the handler was started {starts} {'time' if starts == 1 else 'times'} and did not finish"
    )


def _claimed(
    subscription: Subscription, queue: str, message: Message, state: str = InboxRecord.State.STARTED
) -> InboxRecord:
    records = InboxRecord.objects.using(subscription.using)
    return records.claim(subscription.record_name, queue, message, state)
