"""Values of settings that are numbers or functions: accepted, or refused with the reason. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.utils.module_loading import import_string

MOST = 2**30
#: Dead letters per second. Beyond these, dates and whole numbers come to their ends.
SLOWEST, FASTEST = 0.01, 1_000_000.0
_MOST_SHARDS = 1024


def count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST:
        raise ValueError(f"{value!r:.100} is not a whole number from 1 to {MOST:,}")
    return value


def count_or_none(value: object) -> int:
    """Accept a whole number from 0 on."""
    return 0 if value == 0 and not isinstance(value, bool) else count(value)


def rate(value: object) -> float:
    """Accept a number per second."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r:.100} is not a number")
    if not SLOWEST <= value <= FASTEST:
        raise ValueError(f"{value!r:.100} is not a number from {SLOWEST:g} to {FASTEST:,.0f}")
    return float(value)


def percent(value: object) -> int:
    if count_or_none(value) > 100:
        raise ValueError(f"{value!r:.100} is more than 100 per cent")
    return count_or_none(value)


def function(value: object) -> Callable[..., Any]:
    """Accept a function, or where one can be imported from."""
    try:
        found: object = import_string(value) if isinstance(value, str) else value
    except ImportError as error:
        raise ValueError(f"{value!r:.100} cannot be imported: {error}") from None
    if not callable(found):
        raise TypeError(f"{value!r:.100} is no function, nor the dotted path of one")
    return found


def shard_count(value: object) -> int:
    """Accept as many shards as a relay can visit."""
    if count(value) > _MOST_SHARDS:
        raise ValueError(f"{value!r} is more than {_MOST_SHARDS}")
    return count(value)
