"""The outcomes of a delivery for one subscription. Values, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """The handler returned and its transaction committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """
    The inbox has a record of the message, which is settled again as recorded.

    *delay* is set for a retry by tier, *until* for a retry of an ordered message.
    """

    state: str
    attempt: int = 0
    delay: float | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """The message was settled on purpose without a call of the handler, or by Skip."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The attempt failed, and the message is tried again after *delay* seconds."""

    delay: float
    by_tier: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Defer:
    """The message is delivered again at *until*; no attempt is counted."""

    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Park:
    """The message becomes a dead letter; *kind* is a code, *reason* a sentence."""

    kind: str
    reason: str


Outcome = Handled | Duplicate | Skipped | Retry | Defer | Park
