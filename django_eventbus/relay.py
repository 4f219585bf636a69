"""Carry the outbox to the broker: claim, publish, confirm, mark."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import NoReturn

from django.db import connections, transaction
from django.utils import timezone

from django_eventbus.conf import conf
from django_eventbus.exceptions import BrokerUnavailable, Unavailable
from django_eventbus.held_keys import release_held
from django_eventbus.intervals import Interval
from django_eventbus.messages import ROW, uuid7
from django_eventbus.models import OutboxEvent, RelayLease
from django_eventbus.models.outbox_event import OutboxQuerySet
from django_eventbus.outages import OutageWatch, proven
from django_eventbus.plan_steps import PlanTurns
from django_eventbus.redrive import give_up_waiting, report_unsent
from django_eventbus.signals import announce, event_failed, event_published, event_unroutable
from django_eventbus.tracing.publishing import traced
from django_eventbus.transports.contract import (
    Confirmed,
    Dispatch,
    Outgoing,
    Publisher,
    Receipt,
    Receipts,
    Refused,
    Rejected,
    ToExchange,
    ToQueue,
    Unroutable,
)

logger = logging.getLogger(__name__)

#: Held by the relay that works on a shard, until its transaction ends.
_LOCK_SPACE = 1_702_260_322
#: How often it looks for re-drives that went unanswered.
_LOOK_EVERY = 10.0
_UNROUTABLE = "no queue was bound to take it"

#: Batches in one transaction, and so at most what is sent again if the relay dies.
_IN_A_ROW = 10
#: Seconds after which a transaction takes no further batch: a slow broker makes it long.
_LONG = 1.0

Pair = tuple[OutboxEvent, Receipt]
#: What was carried, and what then kept the rest from being carried.
Carried = tuple[list[Pair], BrokerUnavailable | None]


class Relay:
    """Carries the outbox of one database. Any number may run: they take turns by shard."""

    def __init__(self, publisher: Publisher, using: str, batch_size: int | None = None) -> None:
        self.publisher = publisher
        self.using = using
        self.batch_size = batch_size or conf.batch_size
        self.holder = uuid7()
        self.looks = Interval(_LOOK_EVERY)
        self.plans = PlanTurns(using)
        #: False while another relay holds the lease that SQLite needs.
        self.is_our_turn = True
        #: On from the first row that the broker does not take until all such rows have left.
        self.refusals = OutageWatch(Relay)

    @property
    def rows(self) -> OutboxQuerySet:
        return OutboxEvent.objects.using(self.using)

    def relay_once(self) -> int:
        """Carry up to a batch per shard; return how many rows left the ready state."""
        with proven(self.using):
            # Before any row is locked: to connect may take longer than a transaction should.
            self.publisher.open()
            self._look_after_redrives()
            self.plans.take()
            self.rows.promote_due(timezone.now())
            # Rows written while SHARDS was higher are still there to be sent.
            shards = max(conf.shards, self.rows.highest_ready_shard() + 1)
            relayed = sum(self._relay_shard(shard) for shard in range(shards))
            if self.refusals.is_on and not self.rows.refused(_UNROUTABLE).exists():
                self.refusals.end()
            return relayed

    def has_ready_rows(self) -> bool:
        """Whether a row is ready, or would be if anyone looked."""
        now = timezone.now()
        ready = self.rows.filter(state=OutboxEvent.State.READY)
        due = self.rows.filter(state=OutboxEvent.State.SCHEDULED, due_at__lte=now)
        with proven(self.using):
            return ready.exists() or due.exists()

    def close(self) -> None:
        # In an outage the lease runs out by itself.
        with suppress(Unavailable), proven(self.using):
            if not self._has_row_locks:
                RelayLease.objects.using(self.using).give_back(self.holder)
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
        # Once for all: in a lost majority each row would say so, and again at each try.
        for row, receipt in pairs:
            if isinstance(receipt, Refused):
                words = f"The broker takes nothing for {_place(row)} now: {receipt.reason}."
                self.refusals.begin(BrokerUnavailable(words, kind="refused"))
                return

    def _relay_under_locks(self, shard: int) -> Carried:
        # The transaction stays open over the confirms: a relay that dies lets go of its rows.
        with transaction.atomic(using=self.using):
            self._bound_transaction()
            return self._relay_in_a_row(shard) if self._lock(shard) else ([], None)

    def _relay_in_a_row(self, shard: int) -> Carried:
        """Carry some batches: each is made ready while the one before it is being confirmed."""
        carried: list[Pair] = []
        until = time.monotonic() + _LONG
        rows = self._claim(shard, after=0)
        try:
            receipts = self._send(self._prepare(rows))
            for further in range(_IN_A_ROW - 1, -1, -1):
                is_time = further and time.monotonic() < until
                following = self._following(shard, rows) if is_time else []
                dispatch = self._prepare(following)
                pairs = self._pairs(rows, receipts)
                # Sent only when all of the last are accounted for, and marked meanwhile.
                receipts = self._send(dispatch)
                self._mark(pairs)
                carried += pairs
                rows = following
        except BrokerUnavailable as failure:
            if not carried:
                raise
            # What was confirmed before is marked all the same.
            return carried, failure
        return carried, None

    def _claim(self, shard: int, after: int) -> list[OutboxEvent]:
        # Not locked one by one, which would write each row twice: whoever holds the shard is the
        # only one to touch its ready rows.
        return self.rows.claim(shard, after, self.batch_size)

    def _following(self, shard: int, rows: Sequence[OutboxEvent]) -> list[OutboxEvent]:
        is_full = len(rows) == self.batch_size
        return self._claim(shard, after=rows[-1].pk) if is_full else []

    def _prepare(self, rows: Sequence[OutboxEvent]) -> Dispatch:
        if not rows:
            return lambda: list
        sys.audit("eventbus.relay.claimed")
        try:
            return traced(rows, self.publisher.prepare([_outgoing(row) for row in rows]))
        except BrokerUnavailable as error:
            return partial(_raise, error)

    def _send(self, dispatch: Dispatch) -> Receipts:
        try:
            return dispatch()
        except BrokerUnavailable as error:
            # Told when its receipts are asked for: the last batch is not marked yet.
            return partial(_raise, error)

    def _pairs(self, rows: Sequence[OutboxEvent], receipts: Receipts) -> list[Pair]:
        pairs = list(zip(rows, receipts(), strict=True))
        if pairs:
            sys.audit("eventbus.relay.confirmed")
        return pairs

    def _relay_under_lease(self, shard: int) -> Carried:
        # An open write transaction stops every other writer: read, publish, then mark.
        leases = RelayLease.objects.using(self.using)
        if not self._notice_turn(leases.take(self.holder, conf.lease)):
            return [], None
        rows = list(self.rows.ready(shard)[: self.batch_size])
        pairs = self._pairs(rows, self._send(self._prepare(rows)))
        with transaction.atomic(using=self.using):
            self._mark(pairs)
        return pairs, None

    def _notice_turn(self, is_ours: bool) -> bool:
        if not is_ours and self.is_our_turn:
            logger.warning("Another relay has the outbox of %r; waiting up to LEASE.", self.using)
        self.is_our_turn = is_ours
        return is_ours

    def _bound_transaction(self) -> None:
        limit = round(conf.confirm_timeout * 2000)
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
        report_unsent(unsent, self.using)
        if pairs:
            sys.audit("eventbus.relay.marked")

    def _look_after_redrives(self) -> None:
        if self.looks.is_due():
            give_up_waiting(self.using)
            release_held(self.using)


def _raise(error: Exception) -> NoReturn:
    raise error


def _outgoing(row: OutboxEvent) -> Outgoing:
    # Names the row in what the broker returns: an event id may be under way more than once.
    message = row.message(**{ROW: row.id})
    if row.is_addressed:
        return Outgoing(address=ToQueue(queue=row.queue), message=message)
    address = ToExchange(exchange=row.exchange, routing_key=row.routing_key)
    return Outgoing(address=address, message=message)


def _verdict(row: OutboxEvent, receipt: Receipt) -> Receipt:
    """Return what *receipt* means for the row: UNROUTABLE may say hold or ignore."""
    # Not for an addressed row, which one queue must have: ignored, a re-drive would be lost.
    if not isinstance(receipt, Unroutable) or row.is_addressed:
        return receipt
    policies: dict[str, Receipt] = {"hold": Refused(reason=_UNROUTABLE), "ignore": Confirmed()}
    return policies.get(conf.unroutable, receipt)


def _hold(row: OutboxEvent) -> timedelta:
    """Return how long *row* rests, so that others come first: the longer, the older it is."""
    shortest, longest = conf.hold_wait
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
    return repr(row.queue) if row.is_addressed else f"{row.exchange!r} by {row.routing_key!r}"
