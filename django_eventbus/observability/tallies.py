"""Count outcomes by the minute, in memory: the heartbeat writes them down."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.dispatch import Signal
from django.utils import timezone

from django_eventbus import signals
from django_eventbus.models.throughput import COUNTED

_SIGNALS: dict[str, Signal] = {name: getattr(signals, f"event_{name}") for name in COUNTED}


class Tally:
    """Counts per minute that are not written down for good yet. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._minutes: dict[datetime, Counter[str]] = {}
        self._names = {signal: name for name, signal in _SIGNALS.items()}

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what is announced in this process meanwhile."""
        for each in _SIGNALS.values():
            each.connect(self._on_signal)
        try:
            yield
        finally:
            for each in _SIGNALS.values():
                each.disconnect(self._on_signal)

    def _on_signal(self, signal: Signal, **kwargs: Any) -> None:
        self.add(self._names[signal])

    def add(self, name: str) -> None:
        with self._lock:
            # Asked for under the lock: no minute grows after a later one has begun.
            minute = _minute(timezone.now())
            self._minutes.setdefault(minute, Counter())[name] += 1

    def minutes(self) -> dict[datetime, dict[str, int]]:
        """Return the whole count of each minute that forget() was not told of."""
        with self._lock:
            return {minute: dict(counts) for minute, counts in self._minutes.items()}

    def forget(self, written: dict[datetime, dict[str, int]]) -> None:
        """Let go of minutes that are *written*, but for the current one, which still grows."""
        with self._lock:
            for minute in set(written) - {_minute(timezone.now())}:
                # Unless it grew between minutes() and now.
                if self._minutes.get(minute) == written[minute]:
                    del self._minutes[minute]


def _minute(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)
