"""Let a message that is suspected of killing its process run alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django_eventbus.exceptions import Busy


class Isolation:
    """Many may run together; one that runs alone waits for them and keeps them out."""

    def __init__(self, patience: float = 5.0) -> None:
        #: Seconds that one who is to run alone waits for the others.
        self.patience = patience
        self._changed = threading.Condition()
        self._together = 0
        self._alone = False

    @contextmanager
    def together(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._together += 1
        try:
            yield
        finally:
            with self._changed:
                self._together -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._alone = True
            # Not for as long as it takes: a slow handler would hold up everybody.
            if not self._changed.wait_for(lambda: not self._together, self.patience):
                self._alone = False
                self._changed.notify_all()
                raise Busy("it is to run alone, and others are still running")
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()
