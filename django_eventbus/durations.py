"""Durations such as "30s", the bounds of the calendar, and a throttle."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_WRITTEN = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)\s*(ms|s|m|h|d)", re.ASCII)

#: A hundred years, so that the sum with a date stays within the calendar.
_LONGEST = 36_500 * 86_400
Duration = str | int | float | timedelta

#: The latest time that is valid in every time zone.
LATEST = "9998-12-31 23:59"


def seconds(value: object) -> float:
    """Return *value* in seconds, or raise ValueError, which lists the valid forms."""
    if isinstance(value, timedelta):
        return _within_reason(value.total_seconds(), value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _within_reason(value, value)
    if isinstance(value, str) and (match := _WRITTEN.fullmatch(value.strip())):
        return _within_reason(float(match[1]) * _UNITS[match[2]], value)
    raise ValueError(_explanation(value))


def label(duration: float) -> str:
    """Format *duration* as a whole number of the largest possible unit: 300 is "5m"."""
    milliseconds = round(duration * 1000)
    for unit in ("d", "h", "m", "s"):
        size = round(_UNITS[unit] * 1000)
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms" if milliseconds else "0s"


def rough(duration: float) -> str:
    """Format *duration* approximately: 200 is "3m"."""
    whole = max(int(duration), 0)
    for size in (86_400, 3_600, 60):
        if whole >= 2 * size:
            return label(whole - whole % size)
    return label(whole)


def _within_reason(duration: float, value: object) -> float:
    if not 0 <= duration <= _LONGEST:
        raise ValueError(_explanation(value))
    return float(duration)


def _explanation(value: object) -> str:
    forms = 'write "30s", "5m", "2h", "7d", seconds, or a timedelta, up to a hundred years'
    # Python does not convert an int of more than 4,300 digits to text.
    is_huge = isinstance(value, int) and abs(value) > _LONGEST
    return f"{'a huge number' if is_huge else repr(value)[:100]} is not a duration: {forms}"


class Throttle:
    """Is due at once, and then at most once in the given number of seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._next = 0.0

    def is_due(self) -> bool:
        """Return whether it is due. If so, it is not due again until the time has passed."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self.seconds
        return True


def is_too_far(time: datetime) -> bool:
    """Whether *time* is too near to an end of the calendar for some time zones."""
    return not 1 < time.year < 9999


def require_within_calendar(until: datetime) -> None:
    """Raise ValueError if *until* is too far away."""
    if is_too_far(until):
        raise ValueError(f"until is too far away; the latest time is {LATEST}")
