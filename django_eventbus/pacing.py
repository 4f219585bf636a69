"""How fast a plan may go, and when it has to stop. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import floor
from typing import Protocol

#: Seconds of a rate that may be used at once by a worker that comes late.
_BURST = 2.0
#: Outcomes below which a share says nothing.
_FEWEST = 10


class Paced(Protocol):
    """What a rate needs to know of a plan."""

    #: None: as fast as it goes.
    rate: float | None
    paced_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """The latest outcomes of a plan."""

    failed: int
    total: int

    @classmethod
    def of(cls, states: Iterable[str]) -> Outcomes:
        counts = Counter(states)
        # What was skipped was not tried; what nobody heard of did not work either.
        failed = counts["failed"] + counts["unknown"]
        return cls(failed=failed, total=failed + counts["healed"])


def is_failing(outcomes: Outcomes, percent: int, *, is_complete: bool) -> bool:
    """Whether more than *percent* failed, once there are enough to say so, or all there will be."""
    if not outcomes.total or (outcomes.total < _FEWEST and not is_complete):
        return False
    return outcomes.failed * 100 > percent * outcomes.total


def allowance(plan: Paced, now: datetime, most: int) -> tuple[int, datetime]:
    """Return how many may go now, and up to when that uses the rate."""
    if plan.rate is None:
        return most, now
    earliest = now - timedelta(seconds=max(_BURST, 1 / plan.rate))
    since = max(plan.paced_at or earliest, earliest)
    # A hair more, so that what floats make of a second is a second.
    number = max(0, floor(min((now - since).total_seconds() * plan.rate + 1e-6, most)))
    return number, since + timedelta(seconds=number / plan.rate)
