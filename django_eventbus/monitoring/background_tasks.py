"""The background tasks of a worker process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

from django_eventbus.conf import conf
from django_eventbus.models import Worker
from django_eventbus.monitoring import queue_levels, table_metrics
from django_eventbus.monitoring.queue_levels import QueueLevels
from django_eventbus.monitoring.table_metrics import TableMetricsReporter
from django_eventbus.observability.statsd import StatsdSink
from django_eventbus.redrive import broker_requests
from django_eventbus.redrive.broker_requests import BrokerRequestRunner
from django_eventbus.subscriptions.queue_specs import queue_specs
from django_eventbus.transports.contract import Transport
from django_eventbus.workers.background import BackgroundTask


def background_tasks(
    transport: Transport, worker: Worker, stop: threading.Event
) -> Iterator[BackgroundTask]:
    """Yield the tasks of *worker*, without its heartbeat."""
    levels = QueueLevels(transport, queue_specs, worker)
    yield BackgroundTask("look at the queues", levels.record, every=queue_levels.RECORD_EVERY)
    # Only a worker whose queues have a DLQ on a broker gets requests to read it.
    if any(map(transport.dead_letter_queue, worker.queues)):
        runner = BrokerRequestRunner(transport, worker, stop)
        yield BackgroundTask(
            "broker requests", runner.run_waiting, every=broker_requests.CHECK_EVERY
        )
    if conf.statsd is not None:
        yield BackgroundTask(
            "report to StatsD", lambda: _report(worker), every=table_metrics.REPORT_EVERY
        )


def _report(worker: Worker) -> None:
    if conf.statsd is not None:
        with closing(StatsdSink(conf.statsd)) as sink:
            TableMetricsReporter(sink, worker).report()
