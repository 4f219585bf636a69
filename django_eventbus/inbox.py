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

from django_eventbus.commits import CommitMarker, refuse_broken_transaction
from django_eventbus.conf import conf
from django_eventbus.dead_letters import Discarded, heal, refuse_discarded, refuse_restored
from django_eventbus.events import cause, caused_by
from django_eventbus.exceptions import (
    Busy,
    NotCommitted,
    StartedTooOften,
    TooEarly,
    Unavailable,
)
from django_eventbus.fingerprints import last_place
from django_eventbus.isolation import Isolation
from django_eventbus.messages import Message
from django_eventbus.models import DeadLetter, InboxMark, InboxRecord
from django_eventbus.outages import is_away, is_worth_running_again, proven, unavailable
from django_eventbus.outcomes import Duplicate, Handled, Outcome
from django_eventbus.parking import Parking
from django_eventbus.recording import Failure, is_closed
from django_eventbus.retries import Decision, Moment, decide
from django_eventbus.settlements import Arrival, Settlement
from django_eventbus.subscriptions import Subscription, policy_for
from django_eventbus.timeouts import limited
from django_eventbus.turns import in_turn, refuse_held

logger = logging.getLogger(__name__)

#: How often a handler is run in all if the database undid its transaction.
_RUNS = 4
#: From so many starts without an end on, a message runs alone, so that only the guilty is blamed.
_SUSPECT = 3


class Inbox:
    """Handles messages once. One per process; safe to use from many threads."""

    def __init__(self, parking: Parking) -> None:
        self.parking = parking
        self.isolation = Isolation()
        #: Starts that were counted and then cut short by an outage, to be taken back.
        self.owed: deque[tuple[Subscription, Message]] = deque()

    def handle_once(self, subscription: Subscription, arrival: Arrival) -> Settlement:
        """Run the handler unless the inbox knows better; record what came of it."""
        self._take_back_starts()
        message = in_turn(subscription, arrival.message)
        if isinstance(message, Duplicate):
            return Settlement(subscription=subscription, outcome=message)
        return _Handling(self, subscription, replace(arrival, message=message)).run()

    def _take_back_starts(self) -> None:
        while self.owed:
            subscription, message = self.owed.popleft()
            try:
                with proven(subscription.using), transaction.atomic(using=subscription.using):
                    _claimed(subscription, "", message).take_back_start()
            except (Busy, Unavailable):
                self.owed.append((subscription, message))
                return


class _Handling:
    """One message on its way through one subscription."""

    def __init__(self, inbox: Inbox, subscription: Subscription, arrival: Arrival) -> None:
        self.inbox = inbox
        self.subscription = subscription
        self.using = subscription.using
        self.arrival = arrival
        self.message = arrival.message
        self.error: BaseException | None = None
        self.event: Any = None
        self.began_at = timezone.now()
        self.began = time.monotonic()

    def run(self) -> Settlement:
        # As long as the transaction, not as the handler: its on_commit hooks publish too.
        with caused_by(cause.get()):
            outcome = self._outcome()
        if self.message.round and is_closed(outcome):
            # Not what is open: a person has restored it meanwhile, and it is to be tried again.
            self._heal(DeadLetter.AWAITED)
        return Settlement(
            subscription=self.subscription,
            outcome=outcome,
            message=self.message,
            error=self.error,
            event=self.event,
            seconds=time.monotonic() - self.began,
        )

    def _outcome(self) -> Outcome:
        if not self.arrival.is_redelivered:
            with self.inbox.isolation.together():
                return self._handled_or_recorded()
        with self._company():
            return self._started()

    def _company(self) -> AbstractContextManager[None]:
        with proven(self.using):
            record = self._known()
        starts = 1 + (record.started if record else 0)
        isolation = self.inbox.isolation
        is_suspect = starts >= min(_SUSPECT, conf.start_limit)
        return isolation.alone() if is_suspect else isolation.together()

    def _started(self) -> Outcome:
        # Counted in its company, not before: what waits for its turn beside a message that
        # kills the process would be blamed for the death.
        started = self._count_start()
        if isinstance(started, Duplicate):
            return started
        if started > conf.start_limit:
            return self._record(StartedTooOften(f"started {started - 1} times without an end"))
        sys.audit("eventbus.inbox.started")
        try:
            return self._handled_or_recorded()
        except (Busy, Unavailable):
            self.inbox.owed.append((self.subscription, self.message))
            raise

    def _count_start(self) -> Duplicate | int:
        with proven(self.using), transaction.atomic(using=self.using, durable=True):
            record = self._claim(InboxRecord.State.STARTED)
            return record.answer_to(self.message) or record.count_start()

    def _handled_or_recorded(self) -> Outcome:
        handle = self._handle if self.subscription.atomic else self._handle_without_transaction
        # Without a transaction nothing was undone, so nothing may be run again at once.
        for _ in range(_RUNS if self.subscription.atomic else 1):
            try:
                return handle()
            except (Busy, Unavailable):
                raise
            # The one place where any error of a handler is caught. SystemExit and the like
            # too: they would end the thread and leave the message unsettled.
            except BaseException as error:
                failure = error
                if not self._was_undone(error):
                    break
        sys.audit("eventbus.inbox.failed")
        return self._record(failure)

    def _was_undone(self, error: BaseException) -> bool:
        if not is_worth_running_again(error):
            return False
        if is_away(self.using):
            raise unavailable(self.using, error) from error
        connections[self.using].close_if_unusable_or_obsolete()
        return True

    def _handle(self) -> Outcome:
        marker = CommitMarker(self.using)
        try:
            with transaction.atomic(using=self.using, durable=True):
                marker.register()
                if answer := self._claim_as_handled():
                    return answer
                self._call_handler()
                sys.audit("eventbus.inbox.called")
                refuse_broken_transaction(self.using)
        except Exception as error:
            # Raised by an on_commit hook of the handler: the transaction stands.
            if not marker.has_fired:
                raise
            name, kind = self.subscription.name, type(error).__name__
            logger.error("An on_commit hook of %s raised %s: %s", name, kind, last_place(error))
        if not marker.has_fired:
            raise NotCommitted(
                "the handler returned, but its transaction was rolled back: it swallowed a "
                "database error (wrap the statement in transaction.atomic()), called "
                "set_rollback(), or closed the connection"
            )
        sys.audit("eventbus.inbox.committed")
        return Handled()

    def _handle_without_transaction(self) -> Outcome:
        record = self._known()
        if record and (answer := record.answer_to(self.message)):
            return answer
        self._refuse_too_old(record)
        self._refuse_discarded()
        refuse_held(self.subscription, self.message)
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
        self._refuse_too_old(record)
        refuse_held(self.subscription, self.message)
        if not self._mark_handled(record):
            # Closed already, and by whom? Asked last: nearly always there is something to heal.
            self._refuse_discarded()
        return None

    def _mark_handled(self, record: InboxRecord) -> bool:
        """Record that it is handled; tell whether its dead letters, if any, could be healed."""
        if not record.is_new:
            record.handled(self.message)
        return (record.is_new and not self.message.round) or self._heal()

    def _heal(self, states: tuple[str, ...] = DeadLetter.WAITING) -> bool:
        name = self.subscription.record_name
        return heal(self.message, name, states=states, using=self.using)

    def _refuse_discarded(self) -> None:
        if self.message.round:
            refuse_discarded(self.message, queue=self.arrival.queue, using=self.using)

    def _known(self) -> InboxRecord | None:
        records = InboxRecord.objects.using(self.using)
        return records.known(self.subscription.record_name, self.message.id)

    def _claim(self, state: str) -> InboxRecord:
        return _claimed(self.subscription, self.arrival.queue, self.message, state)

    def _refuse_too_old(self, record: InboxRecord | None) -> None:
        if record and not record.is_new and record.state != InboxRecord.State.STARTED:
            return
        # Asked after the insert: pruning moves the mark before it deletes.
        sent_at = self.message.last_sent_at
        if sent_at and sent_at <= self.began_at - timedelta(minutes=1):
            InboxMark.objects.using(self.using).refuse_older(sent_at)

    def _call_handler(self) -> None:
        due = self.message.not_before
        if due and due > timezone.now():
            raise TooEarly(until=due)
        self.event = self.subscription.event(self.message, self.arrival.payload)
        cause.set(self.event.meta)
        try:
            with limited(self.subscription):
                self.subscription.handle(self.event)
        except (Busy, Unavailable) as error:
            # Ours to raise: from a handler they would be taken for an outage, for ever.
            raise RuntimeError(f"the handler raised {type(error).__name__}") from error

    def _record(self, error: BaseException) -> Outcome:
        with proven(self.using), transaction.atomic(using=self.using, durable=True):
            record = self._claim(InboxRecord.State.STARTED)
            if answer := record.answer_to(self.message):
                return answer
            if isinstance(error, Discarded):
                refuse_restored(self.message, queue=self.arrival.queue, using=self.using)
            outcome = self._decide(error, record)
            self._failure(error).record(record, outcome, self.inbox.parking)
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
        when = Moment(now=timezone.now(), since=since, latest=latest)
        return decide(error, self.message.attempt, policy, when)


def _claimed(
    subscription: Subscription, queue: str, message: Message, state: str = InboxRecord.State.STARTED
) -> InboxRecord:
    records = InboxRecord.objects.using(subscription.using)
    return records.claim(subscription.record_name, queue, message, state)
