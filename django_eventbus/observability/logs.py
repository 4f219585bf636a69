"""One log line per outcome. It never has a payload or the text of an error, which may quote one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from django.dispatch import Signal

from django_eventbus import signals
from django_eventbus.conf import conf
from django_eventbus.conf.log_codes import LINES
from django_eventbus.durations import label
from django_eventbus.events.event import Meta
from django_eventbus.exceptions import Unavailable
from django_eventbus.models import DeadLetter, OutboxEvent
from django_eventbus.models.message_columns import MessageColumns
from django_eventbus.observability.tracing.tracer import active_tracer, current_ids, ids_in

_loggers = {
    code: logging.getLogger(f"django_eventbus.{each.logger}") for code, each in LINES.items()
}


def connect() -> None:
    """Attach every receiver of this module to its signal."""
    for signal, receiver in _RECEIVERS.items():
        signal.connect(receiver, dispatch_uid=f"django_eventbus.{receiver.__name__}")


def is_enabled(code: str) -> bool:
    """Whether a line of *code* would be logged."""
    # Check this first: it saves formatting thousands of lines per second that are not logged.
    return _loggers[code].isEnabledFor(conf.log_levels[code])


def write(code: str, *values: object, **extra: object) -> None:
    """Write the line of *code*, with its code and *extra* as fields."""
    fields = {"code": code, **current_ids(), **extra}
    _loggers[code].log(conf.log_levels[code], LINES[code].text, *values, extra=fields)


def log_published(row: OutboxEvent, **kwargs: Any) -> None:
    if is_enabled("EVENT_PUBLISHED"):
        write("EVENT_PUBLISHED", *_row_values(row), **_row_fields(row))


def log_unroutable(row: OutboxEvent, policy: str = "", **kwargs: Any) -> None:
    # A held event is tried again and again: it has an error from the second time on.
    if policy == "hold" and row.error:
        return
    write("EVENT_UNROUTABLE", *_row_values(row), **_row_fields(row))


def log_failed(row: OutboxEvent, reason: str, **kwargs: Any) -> None:
    write("EVENT_FAILED", *_row_values(row), _one_line(reason), **_row_fields(row))


def log_handled(meta: Meta, seconds: float, **kwargs: Any) -> None:
    if is_enabled("EVENT_HANDLED"):
        duration = round(seconds * 1000)
        write(
            "EVENT_HANDLED",
            *_meta_values(meta),
            seconds,
            **_meta_fields(meta),
            duration_ms=duration,
        )


def log_repeated(meta: Meta, state: str, **kwargs: Any) -> None:
    write("EVENT_REPEATED", *_meta_values(meta), state, **_meta_fields(meta))


def log_skipped(meta: Meta, error: BaseException | None, **kwargs: Any) -> None:
    write("EVENT_SKIPPED", *_meta_values(meta), **_meta_fields(meta, error))


def log_retried(meta: Meta, error: BaseException, delay: float, **kwargs: Any) -> None:
    details = (label(delay), meta.attempt, meta.tries, _type_name(error))
    write("EVENT_RETRIED", *_meta_values(meta), *details, **_meta_fields(meta, error))


def log_deferred(meta: Meta, until: datetime, **kwargs: Any) -> None:
    write("EVENT_DEFERRED", *_meta_values(meta), until.isoformat(), **_meta_fields(meta))


def log_parked(meta: Meta, kind: str, error: BaseException | None, **kwargs: Any) -> None:
    write(
        "EVENT_PARKED",
        *_meta_values(meta),
        meta.attempt,
        kind,
        **_meta_fields(meta, error),
        kind=kind,
    )


def log_redriven(dead_letter: DeadLetter, **kwargs: Any) -> None:
    target = _one_line(dead_letter.subscription or dead_letter.queue)
    extra = {**_row_fields(dead_letter), "error_type": _one_line(dead_letter.error_type)}
    write("EVENT_REDRIVEN", *_row_values(dead_letter), target, dead_letter.round, **extra)


def log_outage(
    kind: str, over: bool, seconds: float, error: Unavailable | None = None, **kwargs: Any
) -> None:
    if over:
        write("OUTAGE_ENDED", seconds, kind=kind, duration_ms=round(seconds * 1000))
    else:
        write("OUTAGE_BEGAN", error, kind=kind, error_type=_type_name(error))


def _meta_values(meta: Meta) -> tuple[str, str, str]:
    return _one_line(meta.type), _one_line(meta.id), _one_line(meta.subscription or meta.queue)


def _row_values(row: MessageColumns) -> tuple[str, str]:
    return _one_line(row.type), _one_line(row.message_id)


def _one_line(text: str) -> str:
    # A stranger's type or id may have a line break, which would forge a line of the log.
    return text[:255] if text.isprintable() else ascii(text[:255])


def _type_name(error: BaseException | None) -> str:
    return _one_line(type(error).__name__) if error else ""


def _meta_fields(meta: Meta, error: BaseException | None = None) -> dict[str, Any]:
    return {
        **(current_ids() or _trace_fields(meta.headers)),
        "event_id": _one_line(meta.id),
        "event_type": _one_line(meta.type),
        "queue": meta.queue,
        "subscription": _one_line(meta.subscription),
        "routing_key": _one_line(meta.routing_key),
        "correlation_id": _one_line(meta.correlation_id),
        "attempt": meta.attempt,
        "error_type": _type_name(error),
    }


def _row_fields(row: OutboxEvent | DeadLetter) -> dict[str, Any]:
    return {
        **_trace_fields(row.headers),
        "event_id": _one_line(row.message_id),
        "event_type": _one_line(row.type),
        "queue": row.queue,
        "subscription": _one_line(row.subscription),
        "routing_key": _one_line(row.routing_key),
        "correlation_id": _one_line(row.correlation_id),
    }


def _trace_fields(headers: Mapping[str, Any]) -> dict[str, str]:
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
