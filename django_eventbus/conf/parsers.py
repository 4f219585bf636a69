"""Parse and validate the values of settings."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qs, urlsplit

from django.utils.module_loading import import_string

from django_eventbus.durations import seconds

NUMBER_LIMIT = 2**30

#: Dead letters per second. Beyond these, dates and whole numbers come to their ends.
SLOWEST, FASTEST = 0.01, 1_000_000.0
_MOST_SHARDS = 1024
TRACE_ID = "{trace_id}"
_STATSD_PORT = 8125
_PREFIX = re.compile(r"[A-Za-z0-9_.-]+")

T = TypeVar("T")
_WORD = re.compile(r"[A-Za-z0-9_-]+")
_URL = re.compile(r"[a-z][a-z0-9+]*://")


class StatsdServer(NamedTuple):
    """Where measurements are sent, and what stands before their names."""

    host: str
    port: int = _STATSD_PORT
    prefix: str = ""


def count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= NUMBER_LIMIT:
        raise ValueError(f"{value!r:.100} is not a whole number from 1 to {NUMBER_LIMIT:,}")
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
        raise ValueError(f"{value!r:.100} is more than 100 percent")
    return count_or_none(value)


def function(value: object) -> Callable[..., Any]:
    """Accept a function, or where one can be imported from."""
    try:
        found: object = import_string(value) if isinstance(value, str) else value
    except ImportError as error:
        raise ValueError(f"{value!r:.100} cannot be imported: {error}") from None
    if not callable(found):
        raise TypeError(f"{value!r:.100} is not a function or the dotted path of a function")
    return found


def trace_url(value: object) -> str:
    """Accept the URL of a trace's page, with a place for its id."""
    is_web = isinstance(value, str) and value.startswith(("http://", "https://"))
    if not is_web or TRACE_ID not in str(value):
        # It may hold a password: never repeat it.
        example = f"'https://jaeger.example/trace/{TRACE_ID}'"
        raise ValueError(f"is not a valid URL (value not shown). Example: {example}")
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
    # The value is not shown: it may hold a password.
    raise ValueError(
        "is not a valid URL (value not shown). Example: 'statsd://127.0.0.1:8125?prefix=shop'"
    )


def word(value: object) -> str:
    """Accept a name that may stand in queue names: letters, digits, "-" and "_"."""
    if not isinstance(value, str) or not is_word(value):
        raise ValueError(f"{value!r:.100} is not a name of letters, digits, '-' and '_'")
    return str(value)


def is_word(text: str) -> bool:
    return bool(_WORD.fullmatch(text))


def optional(parse: Callable[[Any], T]) -> Callable[[Any], T | None]:
    return lambda value: None if value is None else parse(value)


def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither True nor False")
    return value


def delays(value: object) -> tuple[float, ...]:
    """Accept a list of durations, or a single one."""
    listed = list(value) if isinstance(value, list | tuple) else [value]
    return tuple(seconds(each) for each in listed)


def wait(value: object) -> float:
    """Accept a duration longer than nothing."""
    duration = seconds(value)
    if not duration:
        raise ValueError("the duration must be longer than 0")
    return duration


def one_of(*choices: str) -> Callable[[Any], str]:
    def choice(value: object) -> str:
        if value not in choices:
            raise ValueError(f"{value!r} is not one of {', '.join(choices)}")
        return str(value)

    return choice


def url(value: object) -> str:
    # The value may hold a password: never repeat it.
    if not isinstance(value, str) or not _URL.match(value):
        raise ValueError(
            "is not a valid URL (value not shown). Example: 'amqp://user:password@host/vhost'"
        )
    return value


def web_url(value: object) -> str:
    # It may hold a password too.
    if not isinstance(value, str) or not value.startswith(("http://", "https://")):
        raise ValueError("is not a valid URL (value not shown). Example: 'http://host:15672'")
    return value


def text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("is not text")
    return value


def rules(value: object) -> tuple[str, ...]:
    """Accept a list of keys and paths."""
    if not isinstance(value, list | tuple) or not all(
        each and isinstance(each, str) for each in value
    ):
        raise TypeError(
            "is not a list of keys and paths. Example: ['password', 'payload.card.number']"
        )
    return tuple(value)


def tls_files(value: object) -> dict[str, Any]:
    """Accept the files of a TLS connection, by name."""
    if not isinstance(value, dict) or set(value) - {"CA", "CERTIFICATE", "KEY", "VERIFY"}:
        raise TypeError("is not a dict with the keys CA, CERTIFICATE, KEY and VERIFY")
    return value
