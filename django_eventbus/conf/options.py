"""Settings that are dicts of options: each option has a parser and a default of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django_eventbus.conf.parsers import count, count_or_none, percent, rate, tls_files, wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One key of a dict of options."""

    parse: Callable[[Any], Any]
    default: object


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """How a transport keeps its connections. Durations are in seconds."""

    heartbeat: float
    connect_timeout: float
    confirm_timeout: float
    lease: float
    tls: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveOptions:
    """The pace of plans, and the limits of re-driven messages. Durations are in seconds."""

    canary: int
    rate: float
    in_flight: int
    fail_percent: int
    tries: int
    timeout: float


#: Each setting that is a dict, with its options.
OPTIONS: dict[str, dict[str, Option]] = {
    "BROKER_OPTIONS": {
        "HEARTBEAT": Option(parse=wait, default="60s"),
        "CONNECT_TIMEOUT": Option(parse=wait, default="10s"),
        "CONFIRM_TIMEOUT": Option(parse=wait, default="30s"),
        "LEASE": Option(parse=wait, default="1m"),
        "TLS": Option(parse=tls_files, default={}),
    },
    "REDRIVE": {
        "CANARY": Option(parse=count_or_none, default=5),
        "RATE": Option(parse=rate, default=50),
        "IN_FLIGHT": Option(parse=count, default=200),
        "FAIL_PERCENT": Option(parse=percent, default=20),
        "TRIES": Option(parse=count, default=1),
        "TIMEOUT": Option(parse=wait, default="1h"),
    },
}


def broker_options(value: object) -> BrokerOptions:
    """Accept the options of a connection, by name."""
    return BrokerOptions(**_read(value, OPTIONS["BROKER_OPTIONS"]))


def redrive_options(value: object) -> RedriveOptions:
    """Accept the options of plans, by name."""
    return RedriveOptions(**_read(value, OPTIONS["REDRIVE"]))


def _read(value: object, options: Mapping[str, Option]) -> dict[str, Any]:
    known = ", ".join(options)
    if not isinstance(value, dict):
        raise TypeError(f"must be a dict of options. The options are {known}")
    if unknown := [key for key in value if key not in options]:
        raise ValueError(f"has no option {unknown[0]!r}. The options are {known}")
    return {key.lower(): _parsed(key, each, value) for key, each in options.items()}


def _parsed(key: str, option: Option, value: Mapping[str, Any]) -> Any:
    try:
        return option.parse(value.get(key, option.default))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{key} {error}") from None
