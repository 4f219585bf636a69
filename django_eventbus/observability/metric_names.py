"""The name, type, labels and help text of each metric."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

#: The label value for names that this project does not know: other services choose them.
OTHER = "other"


class Kind(Enum):
    """The type of a metric."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"


# eq=False: hashed by identity, since it is a key of dicts thousands of times a second.
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Metric:
    """A metric: its name, help text and labels."""

    name: str
    help: str
    labels: tuple[str, ...]
    kind: Kind = Kind.GAUGE
    #: The upper bounds of a histogram.
    buckets: tuple[float, ...] = ()


#: A metric, the values of its labels, and the value.
MetricValue = tuple[Metric, tuple[str, ...], float]


class Sink(Protocol):
    """Receives the values of metrics."""

    def write(self, values: Iterable[MetricValue]) -> None:
        """Store or send them. Neither wait nor raise: a delivery is being settled."""


_MESSAGE_LABELS = ("service", "queue", "subscription", "event_type")
_HANDLING_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_LONG_SECONDS = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 21600, 86400)
_BYTES = (256, 1024, 4096, 16384, 65536, 262144, 1048576)

PUBLISHED = Metric(
    name="eventbus_published_total",
    help="Events that the relay sent, by the answer of the broker.",
    labels=("service", "event_type", "result"),
    kind=Kind.COUNTER,
)
OUTCOMES = Metric(
    name="eventbus_outcomes_total",
    help="Outcomes of messages, counted for each subscription and attempt.",
    labels=(*_MESSAGE_LABELS, "outcome", "attempt"),
    kind=Kind.COUNTER,
)
PARKED = Metric(
    name="eventbus_parked_total",
    help="Messages that were parked as dead letters, by kind.",
    labels=(*_MESSAGE_LABELS, "kind"),
    kind=Kind.COUNTER,
)
HANDLING = Metric(
    name="eventbus_handling_duration_seconds",
    help="Time that a handler and its transaction took.",
    labels=(*_MESSAGE_LABELS, "outcome"),
    kind=Kind.HISTOGRAM,
    buckets=_HANDLING_SECONDS,
)
AGE = Metric(
    name="eventbus_event_age_seconds",
    help="Time from publish() until the event was handled.",
    labels=_MESSAGE_LABELS,
    kind=Kind.HISTOGRAM,
    buckets=_LONG_SECONDS,
)
BODY = Metric(
    name="eventbus_body_bytes",
    help="Size of message bodies, counted for each subscription and attempt.",
    labels=("service", "queue", "event_type"),
    kind=Kind.HISTOGRAM,
    buckets=_BYTES,
)
REDRIVEN = Metric(
    name="eventbus_redriven_total",
    help="Dead letters that were re-driven.",
    labels=_MESSAGE_LABELS,
    kind=Kind.COUNTER,
)
OUTAGES_BEGUN = Metric(
    name="eventbus_outages_total",
    help="Outages that began, by the part that waited and the kind of outage.",
    labels=("service", "part", "kind"),
    kind=Kind.COUNTER,
)
OUTAGE = Metric(
    name="eventbus_outage_duration_seconds",
    help="Duration of outages that have ended.",
    labels=("service", "part", "kind"),
    kind=Kind.HISTOGRAM,
    buckets=_LONG_SECONDS,
)

#: Metrics of the events that a process published, handled and so on.
EVENT_METRICS = (
    PUBLISHED,
    OUTCOMES,
    PARKED,
    HANDLING,
    AGE,
    BODY,
    REDRIVEN,
    OUTAGES_BEGUN,
    OUTAGE,
)

DATABASE_UP = Metric(
    name="eventbus_database_up",
    help="1 if the tables can be read, else 0; if they cannot, the other gauges are absent.",
    labels=("service",),
)
OUTBOX = Metric(
    name="eventbus_outbox_events",
    help="Rows of the outbox by their state, counted up to 10,001.",
    labels=("service", "state"),
)
OUTBOX_AGE = Metric(
    name="eventbus_outbox_oldest_ready_age_seconds",
    help="Time for which the oldest event has been ready; 0 if no event is ready.",
    labels=("service",),
)
DEAD_LETTERS = Metric(
    name="eventbus_dead_letters",
    help="Open dead letters that are not ignored for now, counted up to 10,001 over all queues.",
    labels=("service", "queue"),
)
QUEUE_MESSAGES = Metric(
    name="eventbus_queue_messages",
    help="Messages in the queue at the last measurement.",
    labels=("service", "queue"),
)
TIER_MESSAGES = Metric(
    name="eventbus_queue_tier_messages",
    help="Messages in the retry tiers of the queue at the last measurement.",
    labels=("service", "queue"),
)
DLQ_MESSAGES = Metric(
    name="eventbus_queue_dlq_messages",
    help="Messages in the DLQ of the queue at the last measurement.",
    labels=("service", "queue"),
)
CONSUMERS = Metric(
    name="eventbus_queue_consumers",
    help="Live consumers of the queue.",
    labels=("service", "queue"),
)
MEASURED_AGE = Metric(
    name="eventbus_queue_measured_age_seconds",
    help="Time since the last measurement of the queue.",
    labels=("service", "queue"),
)
WORKERS = Metric(
    name="eventbus_workers",
    help="Live workers, by kind.",
    labels=("service", "kind"),
)
WAITING_WORKERS = Metric(
    name="eventbus_workers_in_outage",
    help="Live workers that wait for a server, by the kind of the outage.",
    labels=("service", "kind"),
)
PLANS = Metric(
    name="eventbus_plans",
    help="Plans under way, by action and state.",
    labels=("service", "action", "state"),
)

#: Metrics that are read from the tables.
TABLE_METRICS = (
    DATABASE_UP,
    OUTBOX,
    OUTBOX_AGE,
    DEAD_LETTERS,
    QUEUE_MESSAGES,
    TIER_MESSAGES,
    DLQ_MESSAGES,
    CONSUMERS,
    MEASURED_AGE,
    WORKERS,
    WAITING_WORKERS,
    PLANS,
)
