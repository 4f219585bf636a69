"""Turn what is announced in this process into measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.dispatch import Signal
from django.utils import timezone

from django_eventbus import signals
from django_eventbus.conf import conf
from django_eventbus.events import Meta
from django_eventbus.models import DeadLetter, Outage, OutboxEvent
from django_eventbus.observability.label_values import (
    EventTypes,
    is_known,
    queue_label,
    subscription_label,
)
from django_eventbus.observability.measurements import (
    AGE,
    BODY,
    HANDLING,
    OTHER,
    OUTAGE,
    OUTAGES_BEGUN,
    OUTCOMES,
    PARKED,
    PUBLISHED,
    REDRIVEN,
    Measured,
    Sink,
)

#: Service, queue, subscription and event type, as labels.
Place = tuple[str, str, str, str]

_RESULTS = {
    signals.event_published: "published",
    signals.event_unroutable: "unroutable",
    signals.event_failed: "failed",
}
_OUTCOMES = {
    signals.event_handled: "handled",
    signals.event_repeated: "repeated",
    signals.event_skipped: "skipped",
    signals.event_retried: "retried",
    signals.event_deferred: "deferred",
    signals.event_parked: "parked",
}


class Meter:
    """Measures what is announced, for one sink. Safe to use from many threads."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.types = EventTypes()
        #: Places whose words are known, by the words.
        self._places: dict[Place, Place] = {}
        self._receivers: dict[Signal, Callable[..., None]] = {
            **dict.fromkeys(_RESULTS, self._on_publication),
            **dict.fromkeys(_OUTCOMES, self._on_outcome),
            signals.event_redriven: self._on_redrive,
            signals.outage: self._on_outage,
        }

    def connect(self) -> None:
        for signal, receiver in self._receivers.items():
            signal.connect(receiver, weak=False)

    def disconnect(self) -> None:
        for signal, receiver in self._receivers.items():
            signal.disconnect(receiver)

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Measure what is announced in this process meanwhile."""
        self.connect()
        try:
            yield
        finally:
            self.disconnect()

    def _on_publication(self, signal: Signal, row: OutboxEvent, **kwargs: Any) -> None:
        # An addressed row is a retry or a re-drive, of whatever a stranger sent.
        is_taken = not row.is_addressed or is_known(subscription_label(row.subscription))
        event_type = self.types.label(row.type, is_taken=is_taken)
        self.sink.write([(PUBLISHED, (conf.service, event_type, _RESULTS[signal]), 1)])

    def _on_outcome(
        self, signal: Signal, meta: Meta, seconds: float, size: int, **kwargs: Any
    ) -> None:
        place = self._place(meta.queue, meta.subscription, meta.type)
        service, queue, _, event_type = place
        outcome = _OUTCOMES[signal]
        measured: list[Measured] = [
            (OUTCOMES, (*place, outcome, _attempt(meta)), 1),
            (BODY, (service, queue, event_type), size),
        ]
        if seconds and outcome != "repeated":
            measured.append((HANDLING, (*place, outcome), seconds))
        if outcome == "parked":
            measured.append((PARKED, (*place, kwargs["kind"]), 1))
        elif outcome == "handled" and meta.published_at:
            measured.append((AGE, place, _age(meta.published_at)))
        self.sink.write(measured)

    def _on_redrive(self, dead_letter: DeadLetter, **kwargs: Any) -> None:
        letter = dead_letter
        place = self._place(queue_label(letter.queue), letter.subscription, letter.type)
        self.sink.write([(REDRIVEN, place, 1)])

    def _on_outage(
        self, sender: object, kind: str, over: bool, seconds: float, **kwargs: Any
    ) -> None:
        part = getattr(sender, "__name__", "").lower()
        labels = (
            conf.service,
            part if part in Outage.Part.values else OTHER,
            kind if kind in Outage.Kind.values else OTHER,
        )
        self.sink.write([(OUTAGE, labels, seconds) if over else (OUTAGES_BEGUN, labels, 1)])

    def _place(self, queue: str, subscription: str, event_type: str) -> Place:
        words = (conf.service, queue, subscription, event_type)
        found = self._places.get(words)
        if found:
            return found
        name = subscription_label(subscription)
        label = self.types.label(event_type, is_taken=is_known(name))
        place = (conf.service, queue, name, label)
        if place == words:
            # Only then: there is no end to what strangers may send.
            self._places[words] = place
        return place


def _attempt(meta: Meta) -> str:
    if meta.is_last:
        return "last"
    return "first" if meta.attempt == 1 else "retry"


def _age(published_at: datetime) -> float:
    # The clocks of two hosts may differ.
    return max((timezone.now() - published_at).total_seconds(), 0.0)
