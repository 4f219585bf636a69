"""The stable code, the level and the text of each line that tells an outcome. Pure."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


@dataclass(frozen=True, slots=True)
class Line:
    """How an outcome is told: by which logger, at which level unless LOG_LEVELS says otherwise."""

    logger: str
    level: str
    text: str


LINES: dict[str, Line] = {
    "EVENT_PUBLISHED": Line("relay", "DEBUG", "Published %s %s."),
    "EVENT_UNROUTABLE": Line("relay", "WARNING", "Unroutable: no queue is bound to take %s %s."),
    "EVENT_FAILED": Line("relay", "ERROR", "Failed to publish %s %s: %s"),
    "EVENT_HANDLED": Line("consumer", "DEBUG", "Handled %s %s by %s in %.3f s."),
    "EVENT_REPEATED": Line("consumer", "INFO", "Repeated %s %s: %s has it as %s."),
    "EVENT_SKIPPED": Line("consumer", "WARNING", "Skipped %s %s by %s."),
    "EVENT_RETRIED": Line(
        "consumer", "ERROR", "Retrying %s %s by %s in %s: attempt %d of %d raised %s."
    ),
    "EVENT_DEFERRED": Line("consumer", "INFO", "Deferred %s %s by %s until %s."),
    "EVENT_PARKED": Line("consumer", "CRITICAL", "Parked %s %s by %s on attempt %d: %s."),
    "EVENT_REDRIVEN": Line("redrive", "INFO", "Re-driving %s %s to %s, round %d."),
    "OUTAGE_BEGAN": Line("outages", "ERROR", "Outage: %s Waiting for it to end."),
    "OUTAGE_ENDED": Line("outages", "WARNING", "The outage is over after %.1f s."),
}

_DEFAULTS: dict[str, int] = {
    code: logging.getLevelNamesMapping()[line.level] for code, line in LINES.items()
}

#: What such a line carries in `extra`; the formatter shows these and no others.
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


def levels(given: object) -> Mapping[str, int]:
    """Accept levels by code; return the level of every code."""
    # Asked for every event: most projects give none.
    if given == {}:
        return _DEFAULTS
    if not isinstance(given, dict):
        raise TypeError("is no dict of levels by code, such as {'EVENT_HANDLED': 'INFO'}")
    return {**_DEFAULTS, **{_code(code): _level(level) for code, level in given.items()}}


def _code(given: object) -> str:
    if given not in LINES:
        raise ValueError(f"{given!r:.100} is none of {', '.join(LINES)}")
    return str(given)


def _level(given: object) -> int:
    if given not in _LEVELS:
        raise ValueError(f"{given!r:.100} is none of {', '.join(_LEVELS)}")
    return logging.getLevelNamesMapping()[str(given)]
