"""Write many frames with one call of the system."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pika

#: Bytes that are gathered at most: a window of large messages would fill the memory.
_MOST = 256 * 1024


class GatheringConnection(pika.SelectConnection):
    """
    A connection whose frames can be gathered and written at once.

    pika writes each of a message's three frames by itself, and each write lets go of Python's
    lock: beside a busy thread, getting it back takes longer than the rest of the work.
    """

    _is_gathering = False

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Write what the block sends when it ends."""
        self._frames: list[bytes] = []
        self._size = 0
        self._is_gathering = True
        try:
            yield
        finally:
            self._is_gathering = False
            self._write()

    def write(self, frames: bytes) -> None:
        """Write frames that were not made by pika."""
        self._adapter_emit_data(frames)

    def _adapter_emit_data(self, data: bytes) -> None:
        if not self._is_gathering:
            super()._adapter_emit_data(data)  # type: ignore[misc]
            return
        self._frames.append(data)
        self._size += len(data)
        if self._size > _MOST:
            self._write()

    def _write(self) -> None:
        data, self._frames, self._size = b"".join(self._frames), [], 0
        # A connection that ended meanwhile has nowhere to write to, and says so by itself.
        if data and self.is_open:
            super()._adapter_emit_data(data)  # type: ignore[misc]
