"""Values of settings that are numbers, functions, servers or templates: accepted, or refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from django.utils.module_loading import import_string

MOST = 2**30
#: Dead letters per second. Beyond these, dates and whole numbers come to their ends.
SLOWEST, FASTEST = 0.01, 1_000_000.0
_MOST_SHARDS = 1024
TRACE_ID = "{trace_id}"
_STATSD_PORT = 8125
_PREFIX = re.compile(r"[A-Za-z0-9_.-]+")


class StatsdServer(NamedTuple):
    """Where measurements are sent, and what stands before their names."""

    host: str
    port: int = _STATSD_PORT
    prefix: str = ""


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


def trace_url(value: object) -> str:
    """Accept the URL of a trace's page, with a place for its id."""
    is_web = isinstance(value, str) and value.startswith(("http://", "https://"))
    if not is_web or TRACE_ID not in str(value):
        # It may hold a password: never repeat it.
        example = f"'https://jaeger.example/trace/{TRACE_ID}'"
        raise ValueError(f"is no URL like {example} (it is not repeated here)")
    return str(value)


def shard_count(value: object) -> int:
    """Accept as many shards as a relay can visit."""
    if count(value) > _MOST_SHARDS:
        raise ValueError(f"{value!r} is more than {_MOST_SHARDS}")
    return count(value)


def statsd_url(value: object) -> StatsdServer:
    """Accept a host, perhaps with a port and a prefix."""
    try:
        parts = urlsplit(value if isinstance(value, str) else "")
        given = parse_qs(parts.query, strict_parsing=bool(parts.query))
        (prefix,) = given.pop("prefix", [""])
        is_url = parts.scheme == "statsd" and parts.path in ("", "/") and not parts.fragment
        is_fine = not prefix or _PREFIX.fullmatch(prefix)
        if is_url and is_fine and parts.hostname and parts.username is None and not given:
            return StatsdServer(parts.hostname, parts.port or _STATSD_PORT, prefix.strip("."))
    except ValueError:
        pass
    # It is not repeated: what is no such URL may hold a password.
    raise ValueError("is no URL like 'statsd://127.0.0.1:8125?prefix=shop'")
