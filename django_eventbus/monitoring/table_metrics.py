"""Metrics that are read from the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime

from django.db import DEFAULT_DB_ALIAS, Error
from django.utils import timezone

from django_eventbus.conf import conf
from django_eventbus.models import Outage, Plan, Worker
from django_eventbus.monitoring.status import open_letters_by_queue, plans_under_way, read_counts
from django_eventbus.monitoring.status_values import QueueStatus, Status
from django_eventbus.observability.metric_names import (
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
    Metric,
    MetricValue,
    Sink,
)
from django_eventbus.observability.metrics import queue_label
from django_eventbus.subscriptions.subscription import registry

#: Seconds between two reports.
REPORT_EVERY = 10.0
#: The states of a plan that is under way.
_PLAN_STATES = (Plan.State.CANARY, Plan.State.RUNNING, Plan.State.PAUSED, Plan.State.CANCELLED)


class TableMetricsReporter:
    """Sends the metrics of the tables to a sink; one worker of a service is enough."""

    def __init__(self, sink: Sink, worker: Worker) -> None:
        self.sink = sink
        self.worker = worker

    def report(self) -> None:
        """Read the tables and report, unless an older worker does."""
        now = timezone.now()
        try:
            if Worker.objects.using(DEFAULT_DB_ALIAS).is_first(self.worker, now):
                self.sink.write(table_metrics(now))
        except Error:
            self.sink.write(unavailable_metrics())
            raise


def unavailable_metrics() -> list[MetricValue]:
    """Return the metrics while the database does not answer."""
    return [(DATABASE_UP, (conf.service,), 0)]


def table_metrics(now: datetime) -> list[MetricValue]:
    """Return the metrics that the tables have now. Each query is bounded."""
    status = read_counts(now)
    return [
        (DATABASE_UP, (conf.service,), 1),
        *_outbox_metrics(status),
        *_dead_letter_metrics(),
        *(each for queue in status.queues for each in _queue_metrics(queue, now)),
        *_worker_metrics(status),
        *_plan_metrics(),
    ]


def _outbox_metrics(status: Status) -> Iterator[MetricValue]:
    for state in ("ready", "scheduled", "unroutable", "failed"):
        yield OUTBOX, (conf.service, state), getattr(status.outbox, state)
    yield OUTBOX_AGE, (conf.service,), status.outbox.lag(status.at).total_seconds()


def _dead_letter_metrics() -> Iterator[MetricValue]:
    counts = Counter(dict.fromkeys(registry.queues(), 0))
    for queue, count in open_letters_by_queue().items():
        counts[queue_label(queue)] += count
    for label, count in counts.items():
        yield DEAD_LETTERS, (conf.service, label), count


def _queue_metrics(queue: QueueStatus, now: datetime) -> Iterator[MetricValue]:
    # Never below 0, which would lower a gauge of StatsD: the clocks of two hosts may differ.
    age = max((now - queue.measured_at).total_seconds(), 0.0) if queue.measured_at else None
    known: tuple[tuple[Metric, float | None], ...] = (
        (QUEUE_MESSAGES, queue.messages),
        (TIER_MESSAGES, queue.in_tiers),
        (DLQ_MESSAGES, queue.dlq_messages),
        (CONSUMERS, queue.consumers),
        (MEASURED_AGE, age),
    )
    for metric, value in known:
        # An unknown value is not 0.
        if value is not None:
            yield metric, (conf.service, queue.name), value


def _worker_metrics(status: Status) -> Iterator[MetricValue]:
    yield from _counted(WORKERS, Worker.Kind.values, [each.kind for each in status.live])
    yield from _counted(WAITING_WORKERS, Outage.Kind.values, [each.outage for each in status.live])


def _counted(metric: Metric, kinds: Iterable[str], found: list[str]) -> Iterator[MetricValue]:
    # Kinds without a worker too: an alert cannot watch a metric that is absent.
    for kind in kinds:
        yield metric, (conf.service, kind), found.count(kind)


def _plan_metrics() -> Iterator[MetricValue]:
    counts = plans_under_way()
    for action in Plan.Action.values:
        for state in _PLAN_STATES:
            yield PLANS, (conf.service, action, str(state)), counts[action, state]
