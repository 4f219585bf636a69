"""A progress bar on a terminal; nothing anywhere else."""

from __future__ import annotations

from typing import TextIO

_WIDTH = 30


class ProgressBar:
    """Drawn over itself on one line."""

    def __init__(self, stream: TextIO, total: int) -> None:
        self.stream = stream
        self.total = total
        self.is_shown = stream.isatty()
        self._longest = 0

    def show(self, done: int, words: str = "") -> None:
        if not self.is_shown:
            return
        share = min(done / self.total, 1) if self.total else 1
        bar = "█" * round(share * _WIDTH)
        line = f"{bar:░<{_WIDTH}} {done:,} of {self.total:,} {words}".rstrip()
        self._longest = max(self._longest, len(line))
        self.stream.write(f"\r{line:<{self._longest}}")
        self.stream.flush()

    def end(self) -> None:
        if self.is_shown:
            self.stream.write("\n")
