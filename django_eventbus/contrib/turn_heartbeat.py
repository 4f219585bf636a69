"""The heartbeat of whoever takes turns: processes that come and go share one row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from uuid import UUID, uuid5

from django.db import Error

from django_eventbus.conf import conf
from django_eventbus.heartbeat import Heartbeat, this_process
from django_eventbus.messages import uuid7
from django_eventbus.models.worker import SILENCE

_NAMESPACE = UUID("6f1c1f52-6d0e-5c8e-9d5b-0d6a1b0e7c44")
#: Turns that may fail to come before their service is taken for dead.
_MISSED = 3


class TurnHeartbeat(Heartbeat):
    """Beats when a turn begins and when it ends, in its own thread, and stays until the next."""

    def __init__(self, kind: str, queues: Sequence[str]) -> None:
        worker = this_process(kind, queues)
        # Of a pool of processes any may take the next turn: a row for each would look dead.
        worker.id = uuid5(_NAMESPACE, f"{conf.service} {kind}")
        super().__init__(worker)
        # Counts are whole ones of a minute, which two processes must not write over each other.
        self.counter_id = uuid7()

    @contextmanager
    def turn(self, within: float, every: float) -> Iterator[None]:
        """Count meanwhile; tell that it may last *within* seconds and comes every *every* of them."""
        rest = timedelta(seconds=every * _MISSED)
        with self.tally.counting(), self.notes.listening():
            self._tell(timedelta(seconds=within) + rest)
            try:
                yield
            finally:
                self._tell(rest)

    def _tell(self, patience: timedelta) -> None:
        self.patience = max(patience, SILENCE)
        # A turn does not fail for it: in an outage it tells so itself.
        with suppress(Error):
            self.beat()
