"""Threads beside the work, which they never fail or delay."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import Error, connections

from django_eventbus.exceptions import BrokerRefused, Unavailable

logger = logging.getLogger(__name__)

#: Seconds that the end of a process waits for what its sidelines still have to write.
_FAREWELL = 2.0


class Sideline:
    """Does something every few seconds; what fails for want of a server is tried again."""

    def __init__(
        self,
        name: str,
        work: Callable[[], None],
        *,
        every: float,
        farewell: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self.work = work
        self.every = every
        self.farewell = farewell
        self._ended = threading.Event()
        self._is_failing = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run beside the block, and say farewell after it."""
        thread = threading.Thread(target=self._loop, name=self.name, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            # Not for ever: a server that hangs would keep the process from ending.
            thread.join(_FAREWELL)

    def _loop(self) -> None:
        try:
            self._try(self.work)
            while not self._ended.wait(self.every):
                self._try(self.work)
            self._try(self.farewell)
        finally:
            connections.close_all()

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
            self._is_failing = False
        except (Error, Unavailable, BrokerRefused) as error:
            # Once: whoever works reports the outage itself.
            if not self._is_failing:
                logger.warning("The %s is interrupted: %s", self.name, type(error).__name__)
            self._is_failing = True
            connections.close_all()
