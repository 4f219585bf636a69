"""Lease messages from queue tables, and renew the leases while handlers run."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import cast
from uuid import UUID

from django.db import Error, connections
from django.utils import timezone

from django_eventbus.conf import conf
from django_eventbus.events.message import Message
from django_eventbus.exceptions import Unavailable
from django_eventbus.models import QueuedMessage
from django_eventbus.outages import proven

logger = logging.getLogger("django_eventbus.transports.database")


class DatabaseDelivery:
    """A leased row."""

    def __init__(self, row: QueuedMessage, subscriber: DatabaseSubscriber) -> None:
        self.row = row
        self.message: Message = row.message()
        self.queue = row.queue
        self.is_redelivered = row.deliveries > 1
        self._subscriber = subscriber

    def ack(self) -> None:
        with self._subscriber.settling(self.row):
            if not self.row.ack():
                logger.warning(
                    "The lease of %s expired before the message was settled.", self.message.id
                )

    def release(self, after: float = 0) -> None:
        with self._subscriber.settling(self.row):
            self.row.release(after)


class DatabaseSubscriber:
    """Leases messages from the queues; a thread renews the leases of unsettled ones."""

    def __init__(
        self, using: str, queues: Sequence[str], ordered: Collection[str] = frozenset()
    ) -> None:
        self.using = using
        self.queues = list(queues)
        self.ordered = ordered
        self.lease = conf.broker_options.lease
        self.poll_interval = conf.poll_interval
        self._unsettled: dict[UUID, QueuedMessage] = {}
        self._lock = threading.Lock()
        self._receivers = 0
        self._turn = 0
        self._closed = threading.Event()
        self._keeper = threading.Thread(target=self._keep_leases, name="leases", daemon=True)
        self._keeper.start()

    def receive(self, timeout: float) -> DatabaseDelivery | None:
        deadline = time.monotonic() + timeout
        while not self._closed.is_set():
            if delivery := self._next():
                return delivery
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self._closed.wait(min(left, self.poll_interval))
        return None

    def _next(self) -> DatabaseDelivery | None:
        with self._receiving(), proven(self.using):
            row = self._leased()
            if row is None:
                return None
            self._unsettled[cast("UUID", row.token)] = row
        sys.audit("eventbus.database.leased")
        return DatabaseDelivery(row, self)

    def _leased(self) -> QueuedMessage | None:
        # One queue at a time: for several at once PostgreSQL would sort the whole backlog.
        rows = QueuedMessage.objects.using(self.using)
        self._turn += 1
        for number in range(len(self.queues)):
            queue = self.queues[(self._turn + number) % len(self.queues)]
            lease = rows.lease_first if queue in self.ordered else rows.lease
            if row := lease(queue, self.lease):
                return row
        return None

    @contextmanager
    def _receiving(self) -> Iterator[None]:
        # Counts rows that are leased but not yet listed as unsettled, for is_drained().
        with self._lock:
            self._receivers += 1
        try:
            yield
        finally:
            with self._lock:
                self._receivers -= 1

    @contextmanager
    def settling(self, row: QueuedMessage) -> Iterator[None]:
        """Wrap the statement that settles *row*, and stop renewing its lease."""
        self._forget(row)
        with proven(self.using):
            yield

    def is_drained(self) -> bool:
        with proven(self.using):
            due = QueuedMessage.objects.using(self.using).due(self.queues, timezone.now())
            # The table first: a row that is leased in between is among the unsettled.
            return not (due.exists() or self._receivers or self._unsettled)

    def close(self) -> None:
        self._closed.set()
        self._keeper.join()
        for row in list(self._unsettled.values()):
            # In an outage the lease expires by itself.
            with suppress(Unavailable), self.settling(row):
                row.release(0)

    def _forget(self, row: QueuedMessage) -> None:
        self._unsettled.pop(cast("UUID", row.token), None)

    def _keep_leases(self) -> None:
        try:
            while not self._closed.wait(self.lease / 3):
                self._renew()
        finally:
            connections[self.using].close()

    def _renew(self) -> None:
        tokens = list(self._unsettled)
        if not tokens:
            return
        try:
            QueuedMessage.objects.using(self.using).renew(tokens, self.lease)
        except Error as error:
            # An expired lease causes a second delivery, which the inbox skips.
            logger.warning("Leases were not renewed: %s", type(error).__name__)
            connections[self.using].close()
