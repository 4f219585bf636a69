"""The figures of the bus, as values: what the dashboard and eventbus_status show."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import TextChoices

from django_eventbus.models import Outage, Worker
from django_eventbus.models.throughput import COUNTED

#: Rows are counted up to here: more would take long, and tell a person nothing else.
MOST = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What was done in a minute, or in some."""

    start: datetime
    published: int
    handled: int
    retried: int
    parked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxFigures:
    """What is in the outbox; a count above MOST stands for any higher one."""

    ready: int
    #: When the oldest of those was written.
    oldest_ready_at: datetime | None
    scheduled: int
    unroutable: int
    failed: int

    def lag(self, now: datetime) -> timedelta:
        """Return for how long the oldest row has been ready."""
        return max(now - self.oldest_ready_at, timedelta()) if self.oldest_ready_at else timedelta()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFigures:
    """Dead letters; counts as in OutboxFigures."""

    open: int
    #: Those of them that were parked in the last hour, and in the last day.
    new_in_hour: int
    new_in_day: int
    redriving: int
    #: Waiting too, but put out of sight until a time that has not come.
    ignored: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFigures:
    """A queue, as far as it is known: None is not known."""

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
        """Whether a worker has ever looked at it."""
        return bool(self.measured_at or self.trouble)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFigures:
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
        return _named(Outage.Kind, self.outage)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageFigures:
    """An outage of the last day."""

    kind: str
    part: str
    host: str
    began_at: datetime
    ended_at: datetime | None
    #: False for one whose worker is gone, so that nobody saw its end.
    is_lasting: bool

    @property
    def kind_name(self) -> str:
        return _named(Outage.Kind, self.kind)

    @property
    def part_name(self) -> str:
        return _named(Outage.Part, self.part)


def _named(choices: type[TextChoices], value: str) -> str:
    """Return the name of *value* in the reader's language, or itself if it has none."""
    return str(dict(choices.choices).get(value, value))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFigures:
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
    """Everything that one look at the bus should tell."""

    at: datetime
    outbox: OutboxFigures
    dead_letters: DeadLetterFigures
    queues: tuple[QueueFigures, ...] = ()
    workers: tuple[WorkerFigures, ...] = ()
    outages: tuple[OutageFigures, ...] = ()
    plans: tuple[PlanFigures, ...] = ()
    #: By the minute, and by the quarter of an hour.
    hour: tuple[Span, ...] = ()
    day: tuple[Span, ...] = ()

    @property
    def live(self) -> tuple[WorkerFigures, ...]:
        return tuple(each for each in self.workers if each.is_live)

    @property
    def has_relay(self) -> bool:
        return any(each.relays for each in self.live)


def spans(
    minutes: dict[datetime, dict[str, int]], *, until: datetime, step: timedelta, count: int
) -> tuple[Span, ...]:
    """Add *minutes* up into *count* spans of *step* each; the last one holds *until*."""
    last = until - (until - datetime.min.replace(tzinfo=until.tzinfo)) % step
    starts = [last - step * number for number in range(count - 1, -1, -1)]
    sums = [dict.fromkeys(COUNTED, 0) for _ in starts]
    for minute, counts in minutes.items():
        place = (minute - starts[0]) // step
        if 0 <= place < count:
            for name in COUNTED:
                sums[place][name] += counts[name]
    return tuple(Span(start=start, **each) for start, each in zip(starts, sums, strict=True))
