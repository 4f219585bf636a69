"""Background tasks, which must never disturb the loops."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import Error, connections

from django_eventbus.exceptions import BrokerRefused, Unavailable

logger = logging.getLogger("django_eventbus.workers")

#: Seconds that a process waits at its end for the last writes of its background tasks.
_STOP_TIMEOUT = 2.0


class BackgroundTask:
    """Calls a function every few seconds; errors of a server do not end it."""

    def __init__(
        self,
        name: str,
        work: Callable[[], None],
        *,
        every: float,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self.work = work
        self.every = every
        self.on_stop = on_stop
        self._ended = threading.Event()
        self._is_failing = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the task in a thread until the block ends, then call on_stop."""
        thread = threading.Thread(target=self._loop, name=self.name, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            # With a limit: a server that hangs must not keep the process from ending.
            thread.join(_STOP_TIMEOUT)

    def _loop(self) -> None:
        try:
            self._try(self.work)
            while not self._ended.wait(self.every):
                self._try(self.work)
            self._try(self.on_stop)
        finally:
            connections.close_all()

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
            self._is_failing = False
        except (Error, Unavailable, BrokerRefused) as error:
            # Once: the loops report the outage themselves.
            if not self._is_failing:
                logger.warning(
                    "The background task '%s' failed and is tried again: %s",
                    self.name,
                    type(error).__name__,
                )
            self._is_failing = True
            connections.close_all()
