"""Intervals: what a loop does only so often."""

from __future__ import annotations

import time


class Interval:
    """Is due at once, and then at most once in so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._next = 0.0

    def is_due(self) -> bool:
        """Tell whether it is time again, which it is then not for a while."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self.seconds
        return True
