"""The stable code, level and text of each log line."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

#: The fields of such a line in `extra`; the formatter shows only these.
FIELDS = (
    "code",
    "event_id",
    "event_type",
    "queue",
    "subscription",
    "routing_key",
    "correlation_id",
    "attempt",
    "error_type",
    "kind",
    "duration_ms",
    "trace_id",
    "span_id",
)


@dataclass(frozen=True, slots=True)
class LogLine:
    """The logger, default level and text of a log line; LOG_LEVELS changes the level."""

    logger: str
    level: str
    text: str


LINES: dict[str, LogLine] = {
    "EVENT_PUBLISHED": LogLine("outbox", "DEBUG", "Published %s %s."),
    "EVENT_UNROUTABLE": LogLine("outbox", "WARNING", "No queue is bound to receive %s %s."),
    "EVENT_FAILED": LogLine("outbox", "ERROR", "Failed to publish %s %s: %s"),
    "EVENT_HANDLED": LogLine("consumer", "DEBUG", "Handled %s %s by %s in %.3f s."),
    "EVENT_REPEATED": LogLine("consumer", "INFO", "Received %s %s again: %s recorded it as %s."),
    "EVENT_SKIPPED": LogLine("consumer", "WARNING", "Skipped %s %s by %s."),
    "EVENT_RETRIED": LogLine(
        "consumer", "ERROR", "Retrying %s %s by %s in %s: attempt %d of %d raised %s."
    ),
    "EVENT_DEFERRED": LogLine("consumer", "INFO", "Deferred %s %s by %s until %s."),
    "EVENT_PARKED": LogLine("consumer", "CRITICAL", "Parked %s %s by %s on attempt %d: %s."),
    "EVENT_REDRIVEN": LogLine("redrive", "INFO", "Re-driving %s %s to %s, round %d."),
    "OUTAGE_BEGAN": LogLine("outages", "ERROR", "Outage: %s Waiting for it to end."),
    "OUTAGE_ENDED": LogLine("outages", "WARNING", "The outage is over after %.1f s."),
}

_DEFAULTS: dict[str, int] = {
    code: logging.getLevelNamesMapping()[line.level] for code, line in LINES.items()
}


def levels(given: object) -> Mapping[str, int]:
    """Accept levels by code; return the level of every code."""
    # Called for every event, and most projects set no levels.
    if given == {}:
        return _DEFAULTS
    if not isinstance(given, dict):
        raise TypeError("is not a dict of levels by code. Example: {'EVENT_HANDLED': 'INFO'}")
    return {**_DEFAULTS, **{_code(code): _level(level) for code, level in given.items()}}


def _code(given: object) -> str:
    if given not in LINES:
        raise ValueError(f"{given!r:.100} is not one of {', '.join(LINES)}")
    return str(given)


def _level(given: object) -> int:
    if given not in _LEVELS:
        raise ValueError(f"{given!r:.100} is not one of {', '.join(_LEVELS)}")
    return logging.getLevelNamesMapping()[str(given)]
