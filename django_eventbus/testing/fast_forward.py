"""Relay and consume until nothing is left, without waiting for delays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta

from django.db import connections
from django.db.backends.utils import CursorWrapper
from django.db.models import F
from django.utils import timezone
from msgspec.structs import replace

from django_eventbus.events.message import NOT_BEFORE
from django_eventbus.models import InboxRecord, OutboxEvent
from django_eventbus.transports.contract import (
    Delivery,
    Outgoing,
    PendingBatch,
    Publisher,
    Receipt,
    ToQueue,
    ToTier,
)

_LIMITS = ("idle_in_transaction_session_timeout", "statement_timeout")


class ImmediatePublisher:
    """Sends like *publisher*, but without the tiers, so that a retry returns at once."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    def open(self) -> None:
        """Connect."""
        self._publisher.open()

    def prepare(self, batch: Sequence[Outgoing]) -> PendingBatch:
        """Encode all of *batch* without delays."""
        return self._publisher.prepare([_without_delay(each) for each in batch])

    def publish(self, batch: Sequence[Outgoing]) -> Sequence[Receipt]:
        """Send all of *batch* without delays, and wait for its confirms."""
        return self._publisher.publish([_without_delay(each) for each in batch])

    def close(self) -> None:
        """Disconnect."""
        self._publisher.close()


class ImmediateDelivery:
    """A delivery that returns at once, even if an ordered one would wait."""

    def __init__(self, delivery: Delivery) -> None:
        self.message = delivery.message
        self.queue = delivery.queue
        self.is_redelivered = delivery.is_redelivered
        self.ack = delivery.ack
        self._release = delivery.release

    def release(self, after: float = 0) -> None:
        """Return it."""
        self._release()


def _without_delay(outgoing: Outgoing) -> Outgoing:
    if isinstance(outgoing.address, ToTier):
        return replace(outgoing, address=ToQueue(queue=outgoing.address.queue))
    return outgoing


def make_due(using: str) -> None:
    """Make everything due that waits in the outbox, and the inbox records that wait for it."""
    now = timezone.now()
    # Without rows that the broker refused: it would refuse them again and again.
    waiting = OutboxEvent.objects.using(using).filter(state=OutboxEvent.State.SCHEDULED, error="")
    for row in waiting.filter(due_at__gt=now):
        row.headers.pop(NOT_BEFORE, None)
        row.due_at = now
        row.save(using=using, update_fields=["headers", "due_at"])
    deferred = InboxRecord.objects.using(using).filter(due_at__gt=now)
    deferred.update(due_at=F("due_at") - timedelta(days=3650))


@contextmanager
def committing(aliases: Iterable[str]) -> Iterator[None]:
    """Run the on_commit hooks of the block at its end: the transaction of a test never commits."""
    with ExitStack() as stack:
        for alias in aliases:
            if connections[alias].in_atomic_block:
                stack.enter_context(_limits_restored(alias))
                stack.enter_context(_hooks_run(alias))
        yield


@contextmanager
def _hooks_run(alias: str) -> Iterator[None]:
    connection = connections[alias]
    before = len(connection.run_on_commit)
    yield
    # Read the list each time: the rollback of a savepoint replaces it.
    while len(connection.run_on_commit) > before:
        _, hook, *_ = connection.run_on_commit.pop(before)
        hook()


@contextmanager
def _limits_restored(alias: str) -> Iterator[None]:
    # The package sets these limits for a transaction, but here it lasts for the whole test.
    connection = connections[alias]
    if connection.vendor != "postgresql":
        yield
        return
    with connection.cursor() as cursor:
        before = [_current(cursor, name) for name in _LIMITS]
    yield
    with connection.cursor() as cursor:
        for name, value in zip(_LIMITS, before, strict=True):
            cursor.execute("SELECT set_config(%s, %s, true)", [name, value])


def _current(cursor: CursorWrapper, name: str) -> str:
    cursor.execute("SELECT current_setting(%s)", [name])
    return str(cursor.fetchone()[0])


def raise_if_in_transaction(aliases: Iterable[str]) -> None:
    """Raise RuntimeError inside transaction.atomic() of the test, where nothing is committed."""
    for alias in aliases:
        blocks = connections[alias].atomic_blocks
        if blocks and not getattr(blocks[-1], "_from_testcase", False):
            raise RuntimeError(
                "eventbus cannot deliver inside transaction.atomic(), because nothing is "
                "committed yet. Call it after the block."
            )
