"""Record that this process is alive, what it counted, and its outages."""

from __future__ import annotations

import os
import platform
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from django.db import DEFAULT_DB_ALIAS, Error
from django.utils import timezone

from django_eventbus import signals
from django_eventbus.conf import conf
from django_eventbus.models import Outage, Throughput, Worker
from django_eventbus.models.monitoring import BEAT, COUNTED, SILENCE
from django_eventbus.observability.metric_names import OUTCOMES, PUBLISHED, MetricValue
from django_eventbus.observability.metrics import Meter
from django_eventbus.workers.background import BackgroundTask

#: Unwritten outages that are kept in memory; further ones are only in the log.
_MAX_UNWRITTEN = 1000
#: Where a metric has the label that names the column of Throughput.
_COLUMN_LABELS = {
    PUBLISHED: PUBLISHED.labels.index("result"),
    OUTCOMES: OUTCOMES.labels.index("outcome"),
}


class OutageRecorder:
    """Keeps the outages of one process until they are written. Safe to use from many threads."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._lock = threading.Lock()
        #: Outages that have not ended, by part and kind.
        self._current: dict[tuple[str, str], Outage] = {}
        self._unwritten: list[Outage] = []

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the outages of this process until the block ends."""
        signals.outage.connect(self._on_outage)
        try:
            yield
        finally:
            signals.outage.disconnect(self._on_outage)

    def _on_outage(self, part: str, kind: str, over: bool, **kwargs: Any) -> None:
        with self._lock:
            outage = self._ended(part, kind) if over else self._begun(part, kind)
            if outage and outage not in self._unwritten and len(self._unwritten) < _MAX_UNWRITTEN:
                self._unwritten.append(outage)

    def _begun(self, part: str, kind: str) -> Outage:
        outage = Outage(
            worker_id=self.worker.pk,
            host=self.worker.host,
            part=part,
            kind=kind,
            began_at=timezone.now(),
        )
        self._current[part, kind] = outage
        return outage

    def _ended(self, part: str, kind: str) -> Outage | None:
        outage = self._current.pop((part, kind), None)
        if outage:
            outage.ended_at = timezone.now()
        return outage

    @property
    def longest(self) -> Outage | None:
        """The current outage that began first, if there is any."""
        with self._lock:
            return min(self._current.values(), key=lambda each: each.began_at, default=None)

    def write(self) -> None:
        """Write the unwritten outages, and keep them if that fails."""
        with self._lock:
            outages, self._unwritten = self._unwritten, []
        try:
            Outage.objects.using(DEFAULT_DB_ALIAS).write(outages)
        except Error:
            with self._lock:
                self._unwritten = [*outages, *(e for e in self._unwritten if e not in outages)]
            raise


class ThroughputSink:
    """Adds metrics up per minute until they are written. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._minutes: dict[datetime, Counter[str]] = {}

    def write(self, values: Iterable[MetricValue]) -> None:
        columns = Counter[str]()
        for metric, labels, value in values:
            place = _COLUMN_LABELS.get(metric)
            if place is not None and labels[place] in COUNTED:
                columns[labels[place]] += int(value)
        if columns:
            with self._lock:
                # Read under the lock: no minute grows after a later one has begun.
                minute = _minute(timezone.now())
                self._minutes.setdefault(minute, Counter()).update(columns)

    def minutes(self) -> dict[datetime, dict[str, int]]:
        """Return the whole count of each minute that was not forgotten."""
        with self._lock:
            return {minute: dict(counts) for minute, counts in self._minutes.items()}

    def forget(self, written: dict[datetime, dict[str, int]]) -> None:
        """Drop the minutes that are *written*, except the current one, which still grows."""
        with self._lock:
            for minute in set(written) - {_minute(timezone.now())}:
                # Unless it grew between minutes() and now.
                if self._minutes.get(minute) == written[minute]:
                    del self._minutes[minute]


def _minute(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)


class Heartbeat:
    """Writes the row, counts and outages of this process, and keeps what it could not write."""

    def __init__(
        self,
        worker: Worker,
        is_stopping: Callable[[], bool] = lambda: False,
        every: float = BEAT,
    ) -> None:
        self.worker = worker
        self.is_stopping = is_stopping
        self.every = every
        self.throughput = ThroughputSink()
        self.outages = OutageRecorder(worker)
        #: The id under which the counts are written.
        self.counter_id = worker.pk
        #: How long the process may be silent before it counts as dead.
        self.patience = SILENCE

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Count and beat until the block ends; then write the rest and remove the row."""
        task = BackgroundTask("heartbeat", self.beat, every=self.every, on_stop=self.stop)
        with self.recording(), task.running():
            yield

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Count what this process does, and record its outages, until the block ends."""
        with Meter(self.throughput).measuring(), self.outages.recording():
            yield

    def beat(self) -> None:
        """Write the row of this process, its counts and its outages."""
        outage = self.outages.longest
        self.worker.outage = outage.kind if outage else ""
        self.worker.outage_since = outage.began_at if outage else None
        self.worker.is_stopping = self.is_stopping()
        self.worker.seen_at = timezone.now()
        self.worker.expected_at = self.worker.seen_at + self.patience
        Worker.objects.using(DEFAULT_DB_ALIAS).write(self.worker)
        sys.audit("eventbus.heartbeat.seen")
        self._write_counts_and_outages()

    def stop(self) -> None:
        """Write the rest, and remove the row: a process that ended well is not reported as dead."""
        self._write_counts_and_outages()
        Worker.objects.using(DEFAULT_DB_ALIAS).filter(pk=self.worker.pk).delete()

    def _write_counts_and_outages(self) -> None:
        minutes = self.throughput.minutes()
        Throughput.objects.using(DEFAULT_DB_ALIAS).write(self.counter_id, minutes)
        self.throughput.forget(minutes)
        self.outages.write()


def this_process(kind: str, queues: Sequence[str]) -> Worker:
    """Return a row for this process, which is not written yet."""
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
