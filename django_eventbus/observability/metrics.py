"""Turn signals into metrics, with bounded label values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.dispatch import Signal
from django.utils import timezone

from django_eventbus import signals
from django_eventbus.conf import conf
from django_eventbus.events.event import Event, Meta, event_classes, is_type
from django_eventbus.models import DeadLetter, Outage, OutboxEvent
from django_eventbus.observability.metric_names import (
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
    MetricValue,
    Sink,
)
from django_eventbus.subscriptions.subscription import registry

#: Limit of event types that get a label without being declared: received through a wildcard, or
#: only published.
MAX_UNDECLARED_TYPES = 200


class EventTypes:
    """The event types that get a label of their own; all others share the label OTHER."""

    def __init__(self, limit: int = MAX_UNDECLARED_TYPES) -> None:
        self.limit = limit
        self._known: set[str] = set()
        self._undeclared = 0

    def label(self, event_type: str, *, is_ours: bool) -> str:
        """Return the type, or OTHER; *is_ours* says that this project publishes or subscribes to it."""
        if event_type in self._known or self._is_admitted(event_type, is_ours):
            return event_type
        return OTHER

    def _is_admitted(self, event_type: str, is_ours: bool) -> bool:
        # A refused type is not stored: the number of such types is unbounded.
        if not is_type(event_type):
            return False
        if not _is_declared(event_type):
            if not is_ours or self._undeclared >= self.limit:
                return False
            self._undeclared += 1
        self._known.add(event_type)
        return True


def subscription_label(name: str) -> str:
    """Return the current name of the subscription *name*, OTHER if unknown, "" for none."""
    if not name:
        return ""
    found = registry.named(name)
    return found.name if found else OTHER


def is_known(label: str) -> bool:
    """Whether *label* names something that this project knows."""
    return label not in ("", OTHER)


def queue_label(queue: str) -> str:
    return queue if queue in registry.queues() else OTHER


def _is_declared(event_type: str) -> bool:
    return any(event_type == each.pattern for each in registry) or any(
        event_type == each.event_type for each in event_classes(Event)
    )


#: Service, queue, subscription and event type.
MessageLabels = tuple[str, str, str, str]
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
    """Turns signals into metrics for one sink. Safe to use from many threads."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.types = EventTypes()
        #: Labels that are known to be bounded, by the values that they are made of.
        self._known_labels: dict[MessageLabels, MessageLabels] = {}
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
        """Measure the signals of this process until the block ends."""
        self.connect()
        try:
            yield
        finally:
            self.disconnect()

    def _on_publication(self, signal: Signal, row: OutboxEvent, **kwargs: Any) -> None:
        # An addressed row is a retry or a re-drive, perhaps of a message from another service.
        is_ours = not row.is_addressed or is_known(subscription_label(row.subscription))
        event_type = self.types.label(row.type, is_ours=is_ours)
        self.sink.write([(PUBLISHED, (conf.service, event_type, _RESULTS[signal]), 1)])

    def _on_outcome(
        self, signal: Signal, meta: Meta, seconds: float, size: int, **kwargs: Any
    ) -> None:
        labels = self._message_labels(meta.queue, meta.subscription, meta.type)
        service, queue, _, event_type = labels
        outcome = _OUTCOMES[signal]
        measured: list[MetricValue] = [
            (OUTCOMES, (*labels, outcome, _attempt(meta)), 1),
            (BODY, (service, queue, event_type), size),
        ]
        if seconds and outcome != "repeated":
            measured.append((HANDLING, (*labels, outcome), seconds))
        if outcome == "parked":
            measured.append((PARKED, (*labels, kwargs["kind"]), 1))
        elif outcome == "handled" and meta.published_at:
            measured.append((AGE, labels, _age(meta.published_at)))
        self.sink.write(measured)

    def _on_redrive(self, dead_letter: DeadLetter, **kwargs: Any) -> None:
        letter = dead_letter
        labels = self._message_labels(queue_label(letter.queue), letter.subscription, letter.type)
        self.sink.write([(REDRIVEN, labels, 1)])

    def _on_outage(self, part: str, kind: str, over: bool, seconds: float, **kwargs: Any) -> None:
        labels = (
            conf.service,
            part if part in Outage.Part.values else OTHER,
            kind if kind in Outage.Kind.values else OTHER,
        )
        self.sink.write([(OUTAGE, labels, seconds) if over else (OUTAGES_BEGUN, labels, 1)])

    def _message_labels(self, queue: str, subscription: str, event_type: str) -> MessageLabels:
        given = (conf.service, queue, subscription, event_type)
        found = self._known_labels.get(given)
        if found:
            return found
        name = subscription_label(subscription)
        label = self.types.label(event_type, is_ours=is_known(name))
        labels = (conf.service, queue, name, label)
        if labels == given:
            # Do not store other labels: the number of names that other services send is unbounded.
            self._known_labels[given] = labels
        return labels


def _attempt(meta: Meta) -> str:
    if meta.is_last:
        return "last"
    return "first" if meta.attempt == 1 else "retry"


def _age(published_at: datetime) -> float:
    # The clocks of two hosts may differ.
    return max((timezone.now() - published_at).total_seconds(), 0.0)
