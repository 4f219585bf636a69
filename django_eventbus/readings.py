"""The status as measurements: what Prometheus is told at a scrape, and StatsD every few seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime

from django.db import DEFAULT_DB_ALIAS, Error
from django.utils import timezone

from django_eventbus.conf import conf
from django_eventbus.figures import QueueFigures, Status
from django_eventbus.models import Outage, Plan, Worker
from django_eventbus.observability.label_values import queue_label
from django_eventbus.observability.measurements import (
    CONSUMERS,
    DATABASE_UP,
    DEAD_LETTERS,
    DLQ_MESSAGES,
    MEASURED_AGE,
    OUTBOX,
    OUTBOX_AGE,
    PLANS,
    QUEUE_MESSAGES,
    TIER_MESSAGES,
    WAITING_WORKERS,
    WORKERS,
    Measured,
    Measurement,
    Sink,
)
from django_eventbus.status import glance, open_letters_by_queue, plans_under_way
from django_eventbus.subscriptions import registry

#: Seconds between two reports.
REPORT_EVERY = 10.0
#: A plan that is under way is in one of these.
_PLAN_STATES = (Plan.State.CANARY, Plan.State.RUNNING, Plan.State.PAUSED, Plan.State.CANCELLED)


class Reporter:
    """Sends the readings to a sink; one worker of a service is enough."""

    def __init__(self, sink: Sink, worker: Worker) -> None:
        self.sink = sink
        self.worker = worker

    def look(self) -> None:
        """Read the tables and report, unless an older worker does."""
        now = timezone.now()
        try:
            if Worker.objects.using(DEFAULT_DB_ALIAS).is_first(self.worker, now):
                self.sink.write(readings(now))
        except Error:
            self.sink.write(no_readings())
            raise


def no_readings() -> list[Measured]:
    """Return all that can be said while the database does not answer."""
    return [(DATABASE_UP, (conf.service,), 0)]


def readings(now: datetime) -> list[Measured]:
    """Return what the tables say now. Each query is bounded."""
    status = glance(now)
    return [
        (DATABASE_UP, (conf.service,), 1),
        *_of_outbox(status),
        *_of_dead_letters(),
        *(each for queue in status.queues for each in _of_queue(queue, now)),
        *_of_workers(status),
        *_of_plans(),
    ]


def _of_outbox(status: Status) -> Iterator[Measured]:
    for state in ("ready", "scheduled", "unroutable", "failed"):
        yield OUTBOX, (conf.service, state), getattr(status.outbox, state)
    yield OUTBOX_AGE, (conf.service,), status.outbox.lag(status.at).total_seconds()


def _of_dead_letters() -> Iterator[Measured]:
    counts = Counter(dict.fromkeys(registry.queues(), 0))
    for queue, count in open_letters_by_queue().items():
        counts[queue_label(queue)] += count
    for label, count in counts.items():
        yield DEAD_LETTERS, (conf.service, label), count


def _of_queue(queue: QueueFigures, now: datetime) -> Iterator[Measured]:
    # Never below 0, which would lower a gauge of StatsD: the clocks of two hosts may differ.
    age = max((now - queue.measured_at).total_seconds(), 0.0) if queue.measured_at else None
    known: tuple[tuple[Measurement, float | None], ...] = (
        (QUEUE_MESSAGES, queue.messages),
        (TIER_MESSAGES, queue.in_tiers),
        (DLQ_MESSAGES, queue.dlq_messages),
        (CONSUMERS, queue.consumers),
        (MEASURED_AGE, age),
    )
    for measurement, value in known:
        # What is not known is not 0.
        if value is not None:
            yield measurement, (conf.service, queue.name), value


def _of_workers(status: Status) -> Iterator[Measured]:
    yield from _counted(WORKERS, Worker.Kind.values, [each.kind for each in status.live])
    yield from _counted(WAITING_WORKERS, Outage.Kind.values, [each.outage for each in status.live])


def _counted(
    measurement: Measurement, kinds: Iterable[str], found: list[str]
) -> Iterator[Measured]:
    # Those of which there is none too: an alert cannot be on what is absent.
    for kind in kinds:
        yield measurement, (conf.service, kind), found.count(kind)


def _of_plans() -> Iterator[Measured]:
    counts = plans_under_way()
    for action in Plan.Action.values:
        for state in _PLAN_STATES:
            yield PLANS, (conf.service, action, str(state)), counts[action, state]
