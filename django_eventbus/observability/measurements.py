"""What is measured, by name: one vocabulary for every sink. Values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

#: What a label says of a thing that this project does not know: strangers choose their words.
OTHER = "other"


class Kind(Enum):
    """How the values of a measurement belong together."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"


# eq=False: found by what it is in a dict, thousands of times a second.
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measurement:
    """A name, what it counts, and the labels that its values come with."""

    name: str
    help: str
    labels: tuple[str, ...]
    kind: Kind = Kind.GAUGE
    #: Upper bounds, of a histogram.
    buckets: tuple[float, ...] = ()


#: A measurement, the values of its labels, and how much.
Measured = tuple[Measurement, tuple[str, ...], float]


class Sink(Protocol):
    """Where measurements go."""

    def write(self, measured: Iterable[Measured]) -> None:
        """Take note of them. Neither wait nor raise: a delivery is being settled."""


_PLACE = ("service", "queue", "subscription", "event_type")
_HANDLING_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_LONG_SECONDS = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 21600, 86400)
_BYTES = (256, 1024, 4096, 16384, 65536, 262144, 1048576)

PUBLISHED = Measurement(
    name="eventbus_published_total",
    help="Events that the relay sent, by what the broker said.",
    labels=("service", "event_type", "result"),
    kind=Kind.COUNTER,
)
OUTCOMES = Measurement(
    name="eventbus_outcomes_total",
    help="What became of messages, each time for each subscription.",
    labels=(*_PLACE, "outcome", "attempt"),
    kind=Kind.COUNTER,
)
PARKED = Measurement(
    name="eventbus_parked_total",
    help="Messages that were put aside as dead letters, by why.",
    labels=(*_PLACE, "kind"),
    kind=Kind.COUNTER,
)
HANDLING = Measurement(
    name="eventbus_handling_duration_seconds",
    help="How long a handling took, its transaction included.",
    labels=(*_PLACE, "outcome"),
    kind=Kind.HISTOGRAM,
    buckets=_HANDLING_SECONDS,
)
AGE = Measurement(
    name="eventbus_event_age_seconds",
    help="From publish() until the event was handled.",
    labels=_PLACE,
    kind=Kind.HISTOGRAM,
    buckets=_LONG_SECONDS,
)
BODY = Measurement(
    name="eventbus_body_bytes",
    help="The size of the bodies of messages, each time for each subscription.",
    labels=("service", "queue", "event_type"),
    kind=Kind.HISTOGRAM,
    buckets=_BYTES,
)
REDRIVEN = Measurement(
    name="eventbus_redriven_total",
    help="Dead letters that were sent back.",
    labels=_PLACE,
    kind=Kind.COUNTER,
)
OUTAGES_BEGUN = Measurement(
    name="eventbus_outages_total",
    help="Outages that began, by who waited and for what.",
    labels=("service", "part", "kind"),
    kind=Kind.COUNTER,
)
OUTAGE = Measurement(
    name="eventbus_outage_duration_seconds",
    help="How long outages lasted that are over.",
    labels=("service", "part", "kind"),
    kind=Kind.HISTOGRAM,
    buckets=_LONG_SECONDS,
)

#: What a process did.
DEEDS = (
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

DATABASE_UP = Measurement(
    name="eventbus_database_up",
    help="1 if the tables could be read just now; without them the other gauges are absent.",
    labels=("service",),
)
OUTBOX = Measurement(
    name="eventbus_outbox_events",
    help="Rows of the outbox by their state, counted up to 10,001.",
    labels=("service", "state"),
)
OUTBOX_AGE = Measurement(
    name="eventbus_outbox_oldest_ready_age_seconds",
    help="For how long the oldest event has been ready to be sent; 0 if none is.",
    labels=("service",),
)
DEAD_LETTERS = Measurement(
    name="eventbus_dead_letters",
    help="Dead letters that wait for a person and are not ignored for now, counted up to 10,001 over all queues.",
    labels=("service", "queue"),
)
QUEUE_MESSAGES = Measurement(
    name="eventbus_queue_messages",
    help="Messages in the queue when a worker last looked.",
    labels=("service", "queue"),
)
TIER_MESSAGES = Measurement(
    name="eventbus_queue_tier_messages",
    help="Messages that wait in the tiers of the queue, likewise.",
    labels=("service", "queue"),
)
DLQ_MESSAGES = Measurement(
    name="eventbus_queue_dlq_messages",
    help="Messages in the DLQ of the queue, likewise.",
    labels=("service", "queue"),
)
CONSUMERS = Measurement(
    name="eventbus_queue_consumers",
    help="Live consumers of the queue.",
    labels=("service", "queue"),
)
MEASURED_AGE = Measurement(
    name="eventbus_queue_measured_age_seconds",
    help="How long ago a worker last looked at the queue.",
    labels=("service", "queue"),
)
WORKERS = Measurement(
    name="eventbus_workers",
    help="Workers that live, by their kind.",
    labels=("service", "kind"),
)
WAITING_WORKERS = Measurement(
    name="eventbus_workers_in_outage",
    help="Live workers that wait for a server, by the kind of the outage.",
    labels=("service", "kind"),
)
PLANS = Measurement(
    name="eventbus_plans",
    help="Plans under way, by what they do and how they stand.",
    labels=("service", "action", "state"),
)

#: What the tables say.
GAUGES = (
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
