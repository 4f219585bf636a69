"""How many messages a process may take. Safe to use from many threads."""

from __future__ import annotations

import threading


class Allowance:
    """How many messages may still be taken; without a limit, any number."""

    def __init__(self, limit: int | None) -> None:
        self._lock = threading.Lock()
        self._to_take = self._to_settle = limit

    def take(self) -> bool:
        with self._lock:
            if self._to_take is None:
                return True
            if self._to_take == 0:
                return False
            self._to_take -= 1
            return True

    def give_back(self) -> None:
        with self._lock:
            if self._to_take is not None:
                self._to_take += 1

    def settle(self) -> None:
        with self._lock:
            if self._to_settle is not None:
                self._to_settle -= 1

    @property
    def is_used_up(self) -> bool:
        return self._to_settle == 0
