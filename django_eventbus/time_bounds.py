"""The ends of the calendar, which the times that people give must keep away from. Pure."""

from __future__ import annotations

from datetime import datetime

#: The last minute that may be given, in whichever time zone.
LATEST = "9998-12-31 23:59"


def is_too_far(time: datetime) -> bool:
    """Whether *time* is so near to an end of the calendar that another time zone cannot tell it."""
    return not 1 < time.year < 9999


def require_within_calendar(until: datetime) -> None:
    """Raise ValueError if *until* is too far away."""
    if is_too_far(until):
        raise ValueError(f"until is at an end of the calendar; the latest time is {LATEST}")
