"""One log line per outcome. Never a payload, never the words of an error: they may quote one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.dispatch import Signal

from django_eventbus import signals
from django_eventbus.durations import label
from django_eventbus.events import Meta
from django_eventbus.models import DeadLetter, OutboxEvent
from django_eventbus.models.carried_message import CarriedMessage

relay = logging.getLogger("django_eventbus.relay")
consumer = logging.getLogger("django_eventbus.consumer")
redrive = logging.getLogger("django_eventbus.redrive")


def connect() -> None:
    """Attach every receiver of this module to its signal."""
    for signal, receiver in _RECEIVERS.items():
        signal.connect(receiver, dispatch_uid=f"django_eventbus.{receiver.__name__}")


def log_published(row: OutboxEvent, **kwargs: Any) -> None:
    # Asked first: thousands a second would be described for nobody.
    if not relay.isEnabledFor(logging.INFO):
        return
    relay.info("Published %s %s.", *_row_names(row), extra=_of_row(row, "published"))


def log_unroutable(row: OutboxEvent, **kwargs: Any) -> None:
    relay.warning(
        "Unroutable: no queue is bound to take %s %s.",
        *_row_names(row),
        extra=_of_row(row, "unroutable"),
    )


def log_failed(row: OutboxEvent, reason: str, **kwargs: Any) -> None:
    relay.error(
        "Failed to publish %s %s: %s",
        *_row_names(row),
        _line(reason),
        extra=_of_row(row, "failed"),
    )


def log_handled(meta: Meta, seconds: float, **kwargs: Any) -> None:
    extra = _of(meta, "handled", duration_ms=round(seconds * 1000))
    consumer.info("Handled %s %s by %s in %.3f s.", *_names(meta), seconds, extra=extra)


def log_repeated(meta: Meta, state: str, **kwargs: Any) -> None:
    consumer.info(
        "Repeated %s %s: %s has it as %s.", *_names(meta), state, extra=_of(meta, "repeated")
    )


def log_skipped(meta: Meta, **kwargs: Any) -> None:
    consumer.info("Skipped %s %s by %s.", *_names(meta), extra=_of(meta, "skipped"))


def log_retried(meta: Meta, error: BaseException, delay: float, **kwargs: Any) -> None:
    consumer.warning(
        "Retrying %s %s by %s in %s: attempt %d of %d raised %s.",
        *_names(meta),
        label(delay),
        meta.attempt,
        meta.tries,
        type(error).__name__,
        extra=_of(meta, "retried"),
    )


def log_deferred(meta: Meta, until: datetime, **kwargs: Any) -> None:
    consumer.info(
        "Deferred %s %s by %s until %s.",
        *_names(meta),
        until.isoformat(),
        extra=_of(meta, "deferred"),
    )


def log_parked(meta: Meta, kind: str, **kwargs: Any) -> None:
    consumer.error(
        "Parked %s %s by %s on attempt %d: %s.",
        *_names(meta),
        meta.attempt,
        kind,
        extra=_of(meta, "parked"),
    )


def log_redriven(dead_letter: DeadLetter, **kwargs: Any) -> None:
    redrive.info(
        "Re-driving %s %s to %s, round %d.",
        *_row_names(dead_letter),
        _line(dead_letter.subscription or dead_letter.queue),
        dead_letter.round,
        extra=_of_row(dead_letter, "redriven"),
    )


def _names(meta: Meta) -> tuple[str, str, str]:
    return _line(meta.type), _line(meta.id), _line(meta.subscription or meta.queue)


def _row_names(row: CarriedMessage) -> tuple[str, str]:
    return _line(row.type), _line(row.message_id)


def _line(text: str) -> str:
    # A stranger's type or id may hold a line break, and would then forge a line of the log.
    return text[:255] if text.isprintable() else ascii(text[:255])


def _of(meta: Meta, action: str, **more: Any) -> dict[str, Any]:
    return {
        "action": action,
        "event_id": _line(meta.id),
        "event_type": _line(meta.type),
        "queue": meta.queue,
        "subscription": _line(meta.subscription),
        "attempt": meta.attempt,
        **more,
    }


def _of_row(row: CarriedMessage, action: str) -> dict[str, Any]:
    return {"action": action, "event_id": _line(row.message_id), "event_type": _line(row.type)}


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
}
