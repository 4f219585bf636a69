"""What the audit says of a person who looks into a broker's DLQ, or re-drives from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from django_eventbus import audit


@dataclass(frozen=True, slots=True, kw_only=True)
class DlqAudit:
    """One who asked, and about which queues: an entry before, and one after."""

    queues: Sequence[str]
    by: str
    why: str
    using: str

    def asked(self, kind: str, limit: int) -> None:
        """Write down that it is about to be done to *limit* messages at most."""
        self._record(f"{kind} DLQ", limit, {})

    def redrove(self, moved: int, left: int) -> None:
        self._record("redrove DLQ", moved, {"moved": moved, "left": left})

    def failed_to_redrive(self, error: Exception) -> None:
        self._record("redrove DLQ", 0, {"failed": str(error)})

    def _record(self, verb: str, count: int, outcome: dict[str, int | str]) -> None:
        audit.record(
            verb,
            by=self.by,
            why=self.why,
            selection=urlencode([("queue", queue) for queue in self.queues]),
            using=self.using,
            count=count,
            outcome=outcome,
        )
