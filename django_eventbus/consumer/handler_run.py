"""One run of a handler: its isolation, time limit and commit."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections, transaction

from django_eventbus.events.message import KEY, Message
from django_eventbus.exceptions import Busy, HandlerTimeout, KeyHeld, NotCommitted
from django_eventbus.models import DeadLetter, InboxRecord
from django_eventbus.outages import proven
from django_eventbus.subscriptions.outcomes import Duplicate
from django_eventbus.subscriptions.subscription import Subscription

#: The status of libpq for a transaction that an error has aborted.
_IN_ERROR = 3

logger = logging.getLogger("django_eventbus.consumer")
#: The process exits if a handler runs longer than this multiple of its timeout.
PATIENCE = 2
#: EX_TEMPFAIL: a supervisor starts the process again.
EXIT_CODE = 75


class CommitMarker:
    """
    The only proof of a commit.

    A block can end without an exception and without a commit; a hook can raise after a commit.
    """

    def __init__(self, using: str) -> None:
        self.using = using
        self._fired = False

    def register(self) -> None:
        # First, so that no hook of the handler can raise before it.
        transaction.on_commit(self._fire, using=self.using)

    def _fire(self) -> None:
        self._fired = True

    @property
    def has_fired(self) -> bool:
        return self._fired or self._waits_for_test_case

    @property
    def _waits_for_test_case(self) -> bool:
        # Inside a TestCase nothing commits; a hook that was not dropped counts as a commit.
        connection = connections[self.using]
        hooks = [hook for _, hook, *_ in connection.run_on_commit]
        return connection.in_atomic_block and self._fire in hooks


def require_usable_transaction(using: str) -> None:
    """Raise NotCommitted if a COMMIT on *using* would be answered with a silent ROLLBACK."""
    # PostgreSQL answers COMMIT of an aborted transaction with ROLLBACK and no error, and
    # Django would run the commit hooks: a handler that caught an SQL error looks successful.
    connection = connections[using]
    if connection.vendor != "postgresql" or connection.connection is None:
        return
    if connection.connection.info.transaction_status == _IN_ERROR:
        raise NotCommitted(
            "the handler caught a database error that had already aborted its transaction: "
            "wrap the statement in transaction.atomic()"
        )


class Isolation:
    """A lock: many handlers run together, or one runs alone."""

    def __init__(self, patience: float = 5.0) -> None:
        #: Seconds that alone() waits for the others.
        self.patience = patience
        self._changed = threading.Condition()
        self._together = 0
        self._alone = False

    @contextmanager
    def together(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._together += 1
        try:
            yield
        finally:
            with self._changed:
                self._together -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._alone = True
            # With a limit: a slow handler would block all others.
            if not self._changed.wait_for(lambda: not self._together, self.patience):
                self._alone = False
                self._changed.notify_all()
                raise Busy("the message must run alone, and other handlers are still running")
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()


@contextmanager
def time_limit(subscription: Subscription) -> Iterator[None]:
    """Raise HandlerTimeout after the block if it took longer than the subscription allows."""
    if subscription.timeout is None:
        yield
        return
    _limit_statements(subscription, subscription.timeout)
    began = time.monotonic()
    watchdog = threading.Timer(subscription.timeout * PATIENCE, _end_process, [subscription.name])
    watchdog.daemon = True
    watchdog.start()
    try:
        yield
    finally:
        watchdog.cancel()
    # Without a transaction there is nothing to roll back.
    if subscription.atomic and time.monotonic() - began > subscription.timeout:
        raise HandlerTimeout(
            f"the handler took longer than its timeout of {subscription.timeout:g} s"
        )


def _limit_statements(subscription: Subscription, seconds: float) -> None:
    connection = connections[subscription.using]
    if connection.vendor == "postgresql" and connection.in_atomic_block:
        with connection.cursor() as cursor:
            limit = f"{round(seconds * 1000)}ms"
            cursor.execute("SELECT set_config('statement_timeout', %s, true)", [limit])


def _end_process(name: str) -> None:
    # A thread cannot be stopped from outside, and this one may hold locks, so the process exits.
    # Its messages are delivered again; START_LIMIT parks one whose handler never returns.
    logger.critical("The handler of %s did not return. The process exits.", name)
    os._exit(EXIT_CODE)


def as_next_attempt(subscription: Subscription, message: Message) -> Duplicate | Message:
    """Return *message* with its current attempt: after a crash, an ordered one is delivered unchanged."""
    if not subscription.ordered:
        return message
    with proven(subscription.using):
        records = InboxRecord.objects.using(subscription.using)
        return records.as_next_attempt(subscription.record_name, message)


def require_key_not_held(subscription: Subscription, message: Message) -> None:
    """Raise KeyHeld if keys are held and an earlier event with the same key is parked."""
    key = message.text(KEY)
    if not key or not subscription.holds_keys:
        return
    letters = DeadLetter.objects.using(subscription.using)
    first = letters.waiting_of(subscription.record_name, key).first()
    # If its own dead letter is the first, the message is a re-drive and may run.
    if first and first.message_id != message.id:
        raise KeyHeld("an earlier event with the same key is parked")
