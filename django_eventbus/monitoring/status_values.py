"""The values of a status: outbox, queues, workers, plans, outages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import TextChoices

from django_eventbus.models import Outage, Worker
from django_eventbus.models.monitoring import COUNTED

#: Rows are counted up to this number, because counting more is slow and not useful.
COUNT_LIMIT = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputBucket:
    """What all workers did in one minute or in several."""

    start: datetime
    published: int
    handled: int
    retried: int
    parked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxStatus:
    """The outbox; a count above COUNT_LIMIT means more than COUNT_LIMIT."""

    ready: int
    #: When the oldest ready event was written.
    oldest_ready_at: datetime | None
    scheduled: int
    unroutable: int
    failed: int

    def lag(self, now: datetime) -> timedelta:
        """Return how long the oldest event has been ready."""
        return max(now - self.oldest_ready_at, timedelta()) if self.oldest_ready_at else timedelta()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterStatus:
    """Dead letters; counts as in OutboxStatus."""

    open: int
    #: Open ones that were parked in the last hour, and in the last day.
    new_in_hour: int
    new_in_day: int
    redriving: int
    #: Open, but ignored until a time in the future.
    ignored: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatus:
    """A queue; None means that a value is not known."""

    name: str
    is_measured: bool = False
    messages: int | None = None
    consumers: int | None = None
    in_tiers: int | None = None
    dlq: str = ""
    dlq_messages: int | None = None
    is_collected: bool = False
    measured_at: datetime | None = None
    trouble: str = ""

    @property
    def is_known(self) -> bool:
        """Whether a worker has ever tried to measure the queue."""
        return bool(self.measured_at or self.trouble)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """A relay or a consumer."""

    id: str
    kind: str
    host: str
    pid: int
    version: str
    queues: tuple[str, ...] = ()
    started_at: datetime
    seen_at: datetime
    is_live: bool = True
    is_stopping: bool = False
    outage: str = ""
    outage_since: datetime | None = None

    @property
    def relays(self) -> bool:
        return self.kind != Worker.Kind.CONSUMER

    @property
    def outage_name(self) -> str:
        return _label(Outage.Kind, self.outage)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageStatus:
    """An outage of the last day."""

    kind: str
    part: str
    host: str
    began_at: datetime
    ended_at: datetime | None
    #: False if the worker is gone, so that nobody recorded the end.
    is_lasting: bool

    @property
    def kind_name(self) -> str:
        return _label(Outage.Kind, self.kind)

    @property
    def part_name(self) -> str:
        return _label(Outage.Part, self.part)


def _label(choices: type[TextChoices], value: str) -> str:
    """Return the label of *value* in the reader's language, or *value* if it has none."""
    return str(dict(choices.choices).get(value, value))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStatus:
    """A plan that is under way."""

    id: int
    action: str
    state: str
    by: str
    note: str
    total: int
    settled: int
    queues: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status of the whole bus."""

    at: datetime
    outbox: OutboxStatus
    dead_letters: DeadLetterStatus
    queues: tuple[QueueStatus, ...] = ()
    workers: tuple[WorkerStatus, ...] = ()
    outages: tuple[OutageStatus, ...] = ()
    plans: tuple[PlanStatus, ...] = ()
    #: Throughput per minute, and per quarter of an hour.
    hour: tuple[ThroughputBucket, ...] = ()
    day: tuple[ThroughputBucket, ...] = ()

    @property
    def live(self) -> tuple[WorkerStatus, ...]:
        return tuple(each for each in self.workers if each.is_live)

    @property
    def has_relay(self) -> bool:
        return any(each.relays for each in self.live)


def throughput_buckets(
    minutes: dict[datetime, dict[str, int]], *, until: datetime, step: timedelta, count: int
) -> tuple[ThroughputBucket, ...]:
    """Add *minutes* up into *count* buckets of *step* each; the last one contains *until*."""
    last = until - (until - datetime.min.replace(tzinfo=until.tzinfo)) % step
    starts = [last - step * number for number in range(count - 1, -1, -1)]
    sums = [dict.fromkeys(COUNTED, 0) for _ in starts]
    for minute, counts in minutes.items():
        place = (minute - starts[0]) // step
        if 0 <= place < count:
            for name in COUNTED:
                sums[place][name] += counts[name]
    return tuple(
        ThroughputBucket(start=start, **each) for start, each in zip(starts, sums, strict=True)
    )
