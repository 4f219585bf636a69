"""What became of a delivery for one subscription. Values, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """The handler returned and its transaction committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """
    The inbox knew it: settle again as recorded.

    *delay* is set if that was a retry by tier, *until* if it is to be tried again in its place.
    """

    state: str
    attempt: int = 0
    delay: float | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Settled on purpose without an effect."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A failed attempt, to be tried again after *delay* seconds."""

    delay: float
    by_tier: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Defer:
    """Too early: come back at *until* without an attempt counted."""

    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Park:
    """Put aside for a person; *kind* says why in a word, *reason* in a sentence."""

    kind: str
    reason: str


Outcome = Handled | Duplicate | Skipped | Retry | Defer | Park
