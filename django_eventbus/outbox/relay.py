"""Publish the outbox to the broker: claim, publish, confirm, mark."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta

from django.db import OperationalError, connections, transaction
from django.utils import timezone

from django_eventbus.conf import conf
from django_eventbus.events.message import ROW, uuid7
from django_eventbus.exceptions import BrokerUnavailable, Unavailable
from django_eventbus.models import DeadLetter, OutboxEvent, RelayLease
from django_eventbus.models.outbox import OutboxQuerySet
from django_eventbus.observability.tracing.spans import PublishSpan, publish_span
from django_eventbus.outages import OutageWatch, proven
from django_eventbus.signals import announce, event_failed, event_published, event_unroutable
from django_eventbus.transports.contract import (
    Confirmed,
    Outgoing,
    PendingBatch,
    Publisher,
    Receipt,
    Refused,
    Rejected,
    ToExchange,
    ToQueue,
    Unroutable,
)

logger = logging.getLogger("django_eventbus.outbox")

#: The namespace of the advisory lock that a relay holds on a shard during its transaction.
_LOCK_SPACE = 1_702_260_322
_UNROUTABLE = "no queue is bound to receive it"
_WAIT_FOR_RELAY = "10s"
_LOCK_NOT_AVAILABLE = "55P03"

#: The shortest and the longest time in seconds before a refused row is sent again.
HOLD_WAIT = (5.0, 60.0)
#: The number of batches in one transaction; at most these are sent again if the relay dies.
_IN_A_ROW = 10
#: Seconds after which a transaction claims no further batch, in case the broker is slow.
_LONG = 1.0

Pair = tuple[OutboxEvent, Receipt]
#: The rows that were sent with their receipts, and the error that stopped the relay.
Carried = tuple[list[Pair], BrokerUnavailable | None]


class Relay:
    """Publishes the outbox of one database. Several relays share the work by shard."""

    def __init__(self, publisher: Publisher, using: str, batch_size: int | None = None) -> None:
        self.publisher = publisher
        self.using = using
        self.batch_size = batch_size or conf.batch_size
        self.holder = uuid7()
        #: False while another relay holds the lease that SQLite needs.
        self.is_our_turn = True
        #: An outage from the first row that the broker refuses until no refused row is left.
        self.refusals = OutageWatch(Relay, "relay")

    @property
    def rows(self) -> OutboxQuerySet:
        return OutboxEvent.objects.using(self.using)

    def open(self) -> None:
        """Connect to the broker, unless connected."""
        # Before any row is locked: a connection may take longer than a transaction should.
        self.publisher.open()

    def relay_once(self) -> int:
        """Publish the ready rows of each shard; return how many rows left the ready state."""
        with proven(self.using):
            self.open()
            self.rows.promote_due(timezone.now())
            # SHARDS may have been higher when some rows were written.
            shards = max(conf.shards, self.rows.highest_ready_shard() + 1)
            relayed = sum(self._relay_shard(shard) for shard in range(shards))
            if self.refusals.is_on and not self.rows.refused(_UNROUTABLE).exists():
                self.refusals.end()
            return relayed

    def has_ready_rows(self) -> bool:
        """Whether a row is ready, or scheduled and due."""
        now = timezone.now()
        ready = self.rows.filter(state=OutboxEvent.State.READY)
        due = self.rows.filter(state=OutboxEvent.State.SCHEDULED, due_at__lte=now)
        with proven(self.using):
            return ready.exists() or due.exists()

    def close(self) -> None:
        # In an outage the lease expires by itself.
        with suppress(Unavailable), proven(self.using):
            if not self._has_row_locks:
                RelayLease.objects.using(self.using).release(self.holder)
        self.publisher.close()

    @property
    def _has_row_locks(self) -> bool:
        return connections[self.using].features.has_select_for_update_skip_locked

    def _relay_shard(self, shard: int) -> int:
        relay = self._relay_under_locks if self._has_row_locks else self._relay_under_lease
        pairs, failure = relay(shard)
        if pairs:
            sys.audit("eventbus.relay.committed")
        for row, receipt in pairs:
            _announce(row, receipt)
        self._notice_refusal(pairs)
        if failure:
            raise failure
        return len(pairs)

    def _notice_refusal(self, pairs: Sequence[Pair]) -> None:
        # Once for all rows: if a queue has no majority, each row is refused at each try.
        for row, receipt in pairs:
            if isinstance(receipt, Refused):
                words = f"The broker does not accept messages for {_place(row)}: {receipt.reason}."
                self.refusals.begin(BrokerUnavailable(words, kind="refused"))
                return

    def _relay_under_locks(self, shard: int) -> Carried:
        # The transaction stays open until the confirms: the lock of a relay that dies is released.
        with transaction.atomic(using=self.using):
            self._bound_transaction()
            return self._relay_in_a_row(shard) if self._lock(shard) else ([], None)

    def _relay_in_a_row(self, shard: int) -> Carried:
        """Publish several batches; encode each while the broker confirms the one before."""
        carried: list[Pair] = []
        pairs: list[Pair] = []
        until = time.monotonic() + _LONG
        rows = self._claim(shard, after=0)
        batch = self._prepare(rows)
        try:
            for further in range(_IN_A_ROW - 1, -1, -1):
                if not rows:
                    break
                with publish_span(rows) as span:
                    # The last batch has all its receipts by now, and is marked while this one is sent.
                    batch.send()
                    self._mark(pairs)
                    carried += pairs
                    is_time = further and time.monotonic() < until
                    following = self._following(shard, rows) if is_time else []
                    next_batch = self._prepare(following)
                    pairs = self._receive(rows, batch, span)
                rows, batch = following, next_batch
        except BrokerUnavailable as failure:
            if not carried:
                raise
            # The batches that were confirmed before are marked.
            return carried, failure
        self._mark(pairs)
        return carried + pairs, None

    def _claim(self, shard: int, after: int) -> list[OutboxEvent]:
        # Rows are not locked one by one, which would write each row twice. Only the relay that
        # holds the lock of the shard changes its ready rows.
        return self.rows.claim(shard, after, self.batch_size)

    def _following(self, shard: int, rows: Sequence[OutboxEvent]) -> list[OutboxEvent]:
        if len(rows) < self.batch_size:
            return []
        last = rows[-1].pk
        following = self._claim(shard, after=last)
        # An id is older than its commit. An event with a lower id may have committed since these
        # rows were claimed, and a later one of its key may be in the following rows. Checked after
        # the claim: whatever comes before one of its rows is visible by now.
        is_one_late = self.rows.has_more_ready_than(len(rows), shard, until=last)
        return [] if is_one_late else following

    def _prepare(self, rows: Sequence[OutboxEvent]) -> PendingBatch:
        if rows:
            sys.audit("eventbus.relay.claimed")
        return self.publisher.prepare([_outgoing(row) for row in rows])

    def _receive(
        self, rows: Sequence[OutboxEvent], batch: PendingBatch, span: PublishSpan
    ) -> list[Pair]:
        receipts = batch.receipts()
        span.received(rows, receipts)
        sys.audit("eventbus.relay.confirmed")
        return list(zip(rows, receipts, strict=True))

    def _relay_under_lease(self, shard: int) -> Carried:
        # SQLite: an open write transaction blocks every other writer, so publish outside of it.
        leases = RelayLease.objects.using(self.using)
        if not self._notice_turn(leases.acquire(self.holder, conf.broker_options.lease)):
            return [], None
        rows = list(self.rows.ready(shard)[: self.batch_size])
        if not rows:
            return [], None
        batch = self._prepare(rows)
        with publish_span(rows) as span:
            batch.send()
            pairs = self._receive(rows, batch, span)
        with transaction.atomic(using=self.using):
            self._mark(pairs)
        return pairs, None

    def _notice_turn(self, is_ours: bool) -> bool:
        if not is_ours and self.is_our_turn:
            logger.warning("Another relay holds the outbox of %r. Waiting up to LEASE.", self.using)
        self.is_our_turn = is_ours
        return is_ours

    def _bound_transaction(self) -> None:
        limit = round(conf.broker_options.confirm_timeout * 2000)
        self._execute(
            "SELECT set_config('idle_in_transaction_session_timeout', %s, true)", f"{limit}ms"
        )

    def _lock(self, shard: int) -> bool:
        return bool(self._execute("SELECT pg_try_advisory_xact_lock(%s, %s)", _LOCK_SPACE, shard))

    def _execute(self, sql: str, *parameters: str | int) -> object:
        with connections[self.using].cursor() as cursor:
            cursor.execute(sql, parameters)
            return cursor.fetchone()[0]

    def _mark(self, pairs: Sequence[Pair]) -> None:
        if not pairs:
            return
        # Confirm first, mark second: a crash in between publishes twice, which the inbox
        # absorbs. The other order would lose events.
        others = [pair for pair in pairs if not isinstance(pair[1], Confirmed)]
        verdicts = [(row, _verdict(row, receipt)) for row, receipt in others]
        self.rows.mark_published(_ids(pairs, Confirmed) + _ids(verdicts, Confirmed))
        self.rows.mark_unroutable(_ids(verdicts, Unroutable), _UNROUTABLE)
        for row, verdict in verdicts:
            if isinstance(verdict, Refused):
                self.rows.hold(row.pk, verdict.reason, timezone.now() + _hold(row))
            elif isinstance(verdict, Rejected):
                self.rows.mark_failed(row.pk, verdict.reason)
        unsent = [row for row, verdict in verdicts if isinstance(verdict, Unroutable | Rejected)]
        DeadLetter.objects.using(self.using).mark_unsent(unsent)
        sys.audit("eventbus.relay.marked")


def hold_shards(shards: Iterable[int], using: str) -> bool:
    """
    Wait until no relay sends rows of *shards*, and keep relays away until the transaction ends.

    Return False if a relay is still sending after a while. In a transaction only.
    """
    # A relay locks no rows: whoever changes rows that are ready has to wait for the shard.
    connection = connections[using]
    if not connection.features.has_select_for_update_skip_locked:
        return True
    set_limit = "SELECT set_config('lock_timeout', %s, true)"
    try:
        with transaction.atomic(using=using), connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('lock_timeout')")
            (limit,) = cursor.fetchone()
            cursor.execute(set_limit, [_WAIT_FOR_RELAY])
            for shard in sorted(set(shards)):
                cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [_LOCK_SPACE, shard])
            cursor.execute(set_limit, [limit])
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", "") != _LOCK_NOT_AVAILABLE:
            raise
        return False
    return True


def _outgoing(row: OutboxEvent) -> Outgoing:
    # Identifies the row of a returned message: an event id may be sent more than once.
    message = row.message(**{ROW: row.id})
    if row.is_addressed:
        return Outgoing(address=ToQueue(queue=row.queue), message=message)
    address = ToExchange(exchange=row.exchange, routing_key=row.routing_key)
    return Outgoing(address=address, message=message)


def _verdict(row: OutboxEvent, receipt: Receipt) -> Receipt:
    """Return *receipt*, or the receipt that UNROUTABLE puts in its place."""
    # Not for an addressed row: a re-drive that is ignored would be lost.
    if not isinstance(receipt, Unroutable) or row.is_addressed:
        return receipt
    policies: dict[str, Receipt] = {"hold": Refused(reason=_UNROUTABLE), "ignore": Confirmed()}
    return policies.get(conf.unroutable, receipt)


def _hold(row: OutboxEvent) -> timedelta:
    """Return how long *row* waits so that others are sent first; older rows wait longer."""
    shortest, longest = HOLD_WAIT
    age = (timezone.now() - row.created_at).total_seconds() if row.error else 0
    return timedelta(seconds=min(max(shortest, age), longest))


def _ids(pairs: Sequence[Pair], kind: type[Receipt]) -> list[int]:
    return [row.id for row, receipt in pairs if isinstance(receipt, kind)]


def _announce(row: OutboxEvent, receipt: Receipt) -> None:
    match receipt:
        case Confirmed():
            announce(event_published, Relay, row=row)
        case Unroutable():
            policy = "flag" if row.is_addressed else conf.unroutable
            announce(event_unroutable, Relay, row=row, policy=policy)
        case Rejected(reason=reason):
            announce(event_failed, Relay, row=row, reason=reason)


def _place(row: OutboxEvent) -> str:
    if row.is_addressed:
        return f"the queue {row.queue!r}"
    return f"the exchange {row.exchange!r} with the routing key {row.routing_key!r}"
