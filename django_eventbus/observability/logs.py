"""One log line per outcome. Never a payload, never the words of an error: they may quote one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from django.dispatch import Signal

from django_eventbus import signals
from django_eventbus.codes import LINES
from django_eventbus.conf import conf
from django_eventbus.durations import label
from django_eventbus.events import Meta
from django_eventbus.exceptions import Unavailable
from django_eventbus.models import DeadLetter, OutboxEvent
from django_eventbus.models.carried_message import CarriedMessage
from django_eventbus.tracing.trace_contexts import ids_in
from django_eventbus.tracing.tracer import active_tracer, current_ids

_loggers = {
    code: logging.getLogger(f"django_eventbus.{each.logger}") for code, each in LINES.items()
}


def connect() -> None:
    """Attach every receiver of this module to its signal."""
    for signal, receiver in _RECEIVERS.items():
        signal.connect(receiver, dispatch_uid=f"django_eventbus.{receiver.__name__}")


def is_seen(code: str) -> bool:
    """Whether a line of *code* would be shown to anyone."""
    # Asked first: thousands a second would be described for nobody.
    return _loggers[code].isEnabledFor(conf.log_levels[code])


def say(code: str, *values: object, **extra: object) -> None:
    """Write the line of *code*, with its code and *extra* as fields."""
    fields = {"code": code, **current_ids(), **extra}
    _loggers[code].log(conf.log_levels[code], LINES[code].text, *values, extra=fields)


def log_published(row: OutboxEvent, **kwargs: Any) -> None:
    if is_seen("EVENT_PUBLISHED"):
        say("EVENT_PUBLISHED", *_row_names(row), **_of_row(row))


def log_unroutable(row: OutboxEvent, policy: str = "", **kwargs: Any) -> None:
    # Held, it is tried again and again: it has an error from the second time on.
    if policy == "hold" and row.error:
        return
    say("EVENT_UNROUTABLE", *_row_names(row), **_of_row(row))


def log_failed(row: OutboxEvent, reason: str, **kwargs: Any) -> None:
    say("EVENT_FAILED", *_row_names(row), _line(reason), **_of_row(row))


def log_handled(meta: Meta, seconds: float, **kwargs: Any) -> None:
    if is_seen("EVENT_HANDLED"):
        duration = round(seconds * 1000)
        say("EVENT_HANDLED", *_names(meta), seconds, **_of(meta), duration_ms=duration)


def log_repeated(meta: Meta, state: str, **kwargs: Any) -> None:
    say("EVENT_REPEATED", *_names(meta), state, **_of(meta))


def log_skipped(meta: Meta, error: BaseException | None, **kwargs: Any) -> None:
    say("EVENT_SKIPPED", *_names(meta), **_of(meta, error))


def log_retried(meta: Meta, error: BaseException, delay: float, **kwargs: Any) -> None:
    details = (label(delay), meta.attempt, meta.tries, _kind(error))
    say("EVENT_RETRIED", *_names(meta), *details, **_of(meta, error))


def log_deferred(meta: Meta, until: datetime, **kwargs: Any) -> None:
    say("EVENT_DEFERRED", *_names(meta), until.isoformat(), **_of(meta))


def log_parked(meta: Meta, kind: str, error: BaseException | None, **kwargs: Any) -> None:
    say("EVENT_PARKED", *_names(meta), meta.attempt, kind, **_of(meta, error), kind=kind)


def log_redriven(dead_letter: DeadLetter, **kwargs: Any) -> None:
    target = _line(dead_letter.subscription or dead_letter.queue)
    extra = {**_of_row(dead_letter), "error_type": _line(dead_letter.error_type)}
    say("EVENT_REDRIVEN", *_row_names(dead_letter), target, dead_letter.round, **extra)


def log_outage(
    kind: str, over: bool, seconds: float, error: Unavailable | None = None, **kwargs: Any
) -> None:
    if over:
        say("OUTAGE_ENDED", seconds, kind=kind, duration_ms=round(seconds * 1000))
    else:
        say("OUTAGE_BEGAN", error, kind=kind, error_type=_kind(error))


def _names(meta: Meta) -> tuple[str, str, str]:
    return _line(meta.type), _line(meta.id), _line(meta.subscription or meta.queue)


def _row_names(row: CarriedMessage) -> tuple[str, str]:
    return _line(row.type), _line(row.message_id)


def _line(text: str) -> str:
    # A stranger's type or id may hold a line break, and would then forge a line of the log.
    return text[:255] if text.isprintable() else ascii(text[:255])


def _kind(error: BaseException | None) -> str:
    return _line(type(error).__name__) if error else ""


def _of(meta: Meta, error: BaseException | None = None) -> dict[str, Any]:
    return {
        **(current_ids() or _trace_of(meta.headers)),
        "event_id": _line(meta.id),
        "event_type": _line(meta.type),
        "queue": meta.queue,
        "subscription": _line(meta.subscription),
        "routing_key": _line(meta.routing_key),
        "correlation_id": _line(meta.correlation_id),
        "attempt": meta.attempt,
        "error_type": _kind(error),
    }


def _of_row(row: OutboxEvent | DeadLetter) -> dict[str, Any]:
    return {
        **_trace_of(row.headers),
        "event_id": _line(row.message_id),
        "event_type": _line(row.type),
        "queue": row.queue,
        "subscription": _line(row.subscription),
        "routing_key": _line(row.routing_key),
        "correlation_id": _line(row.correlation_id),
    }


def _trace_of(headers: Mapping[str, Any]) -> dict[str, str]:
    return ids_in(headers) if active_tracer() else {}


_RECEIVERS: dict[Signal, Callable[..., None]] = {
    signals.event_published: log_published,
    signals.event_unroutable: log_unroutable,
    signals.event_failed: log_failed,
    signals.event_handled: log_handled,
    signals.event_repeated: log_repeated,
    signals.event_skipped: log_skipped,
    signals.event_retried: log_retried,
    signals.event_deferred: log_deferred,
    signals.event_parked: log_parked,
    signals.event_redriven: log_redriven,
    signals.outage: log_outage,
}
