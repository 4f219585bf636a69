"""Remember outages until there is a database to write them to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.utils import timezone

from django_eventbus import signals
from django_eventbus.models import Outage, Worker

#: Outages that are kept while none can be written; what is more is in the log alone.
_MOST = 1000


class OutageNotes:
    """The outages of one process that are not written down yet. Safe to use from many threads."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._lock = threading.Lock()
        #: Those that last, by who waits and for what.
        self._lasting: dict[tuple[str, str], Outage] = {}
        self._unwritten: list[Outage] = []

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Note what is announced in this process meanwhile."""
        signals.outage.connect(self._on_outage)
        try:
            yield
        finally:
            signals.outage.disconnect(self._on_outage)

    def _on_outage(self, sender: Any, kind: str, over: bool, **kwargs: Any) -> None:
        part = getattr(sender, "__name__", "").lower()[:40]
        with self._lock:
            outage = self._ended(part, kind) if over else self._begun(part, kind)
            if outage and outage not in self._unwritten and len(self._unwritten) < _MOST:
                self._unwritten.append(outage)

    def _begun(self, part: str, kind: str) -> Outage:
        outage = Outage(
            worker_id=self.worker.pk,
            host=self.worker.host,
            part=part,
            kind=kind,
            began_at=timezone.now(),
        )
        self._lasting[part, kind] = outage
        return outage

    def _ended(self, part: str, kind: str) -> Outage | None:
        outage = self._lasting.pop((part, kind), None)
        if outage:
            outage.ended_at = timezone.now()
        return outage

    @property
    def lasting(self) -> Outage | None:
        """The outage that has lasted longest, if there is any."""
        with self._lock:
            return min(self._lasting.values(), key=lambda each: each.began_at, default=None)

    def take(self) -> list[Outage]:
        """Return what is to be written; give_back() it if it was not."""
        with self._lock:
            taken, self._unwritten = self._unwritten, []
        return taken

    def give_back(self, outages: list[Outage]) -> None:
        with self._lock:
            self._unwritten = [*outages, *(e for e in self._unwritten if e not in outages)]
