"""Tell the database every few seconds that this process lives, and what it has done."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

from django.db import DEFAULT_DB_ALIAS, Error
from django.utils import timezone

from django_eventbus.conf import conf
from django_eventbus.models import Outage, Throughput, Worker
from django_eventbus.models.worker import BEAT, SILENCE
from django_eventbus.observability.outage_notes import OutageNotes
from django_eventbus.observability.tallies import Tally
from django_eventbus.sidelines import Sideline


class Heartbeat:
    """Writes this process's row, its counts and its outages, and keeps what it could not write."""

    def __init__(
        self,
        worker: Worker,
        is_stopping: Callable[[], bool] = lambda: False,
        every: float = BEAT,
    ) -> None:
        self.worker = worker
        self.is_stopping = is_stopping
        self.every = every
        self.tally = Tally()
        self.notes = OutageNotes(worker)
        #: Whose counts these are.
        self.counter_id = worker.pk
        #: How long it may be silent.
        self.patience = SILENCE

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Count and beat meanwhile; then write the rest and take the row away."""
        line = Sideline("heartbeat", self.beat, every=self.every, farewell=self.leave)
        with self.tally.counting(), self.notes.listening(), line.running():
            yield

    def beat(self) -> None:
        """Write everything that is there to be written."""
        lasting = self.notes.lasting
        self.worker.outage = lasting.kind if lasting else ""
        self.worker.outage_since = lasting.began_at if lasting else None
        self.worker.is_stopping = self.is_stopping()
        self.worker.seen_at = timezone.now()
        self.worker.expected_at = self.worker.seen_at + self.patience
        Worker.objects.using(DEFAULT_DB_ALIAS).write(self.worker)
        sys.audit("eventbus.heartbeat.seen")
        self._write_notes()

    def leave(self) -> None:
        """Write the rest, and remove the row: a process that ended well is not missed."""
        self._write_notes()
        Worker.objects.using(DEFAULT_DB_ALIAS).filter(pk=self.worker.pk).delete()

    def _write_notes(self) -> None:
        minutes = self.tally.minutes()
        Throughput.objects.using(DEFAULT_DB_ALIAS).write(self.counter_id, minutes)
        self.tally.forget(minutes)
        outages = self.notes.take()
        try:
            Outage.objects.using(DEFAULT_DB_ALIAS).write(outages)
        except Error:
            self.notes.give_back(outages)
            raise


def this_process(kind: str, queues: Sequence[str]) -> Worker:
    """Return the row of this process, not written yet."""
    return Worker(
        kind=kind,
        service=conf.service,
        host=platform.node()[:255],
        pid=os.getpid(),
        version=_version(),
        queues=list(queues),
    )


def _version() -> str:
    try:
        return version("django-eventbus")[:40]
    except PackageNotFoundError:
        return ""
