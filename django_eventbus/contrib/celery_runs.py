"""Runs of relay and consumer that Celery tasks start."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from uuid import UUID, uuid5

from django.db import Error
from django.utils import timezone

from django_eventbus import transports
from django_eventbus.conf import conf
from django_eventbus.durations import Duration, Throttle, seconds
from django_eventbus.events.message import uuid7
from django_eventbus.exceptions import BrokerRefused, Unavailable
from django_eventbus.models import Worker
from django_eventbus.models.monitoring import SILENCE
from django_eventbus.monitoring.background_tasks import background_tasks
from django_eventbus.monitoring.heartbeat import Heartbeat, this_process
from django_eventbus.outages import OutageWatch
from django_eventbus.outbox.relay import Relay
from django_eventbus.pruning import SHORTEST_AGE, prune
from django_eventbus.subscriptions.queue_specs import QueueSpec, queue_specs
from django_eventbus.subscriptions.subscription import registry
from django_eventbus.transports.contract import Transport
from django_eventbus.workers.crew import Crew
from django_eventbus.workers.loops import ConsumerLoop, RelayLoop, consumer_loops

_NAMESPACE = UUID("6f1c1f52-6d0e-5c8e-9d5b-0d6a1b0e7c44")

#: The number of missed runs after which the worker counts as dead.
_MISSED = 3

#: For all runs of this process: an outage is announced once when it begins and ends.
_watch = OutageWatch(Relay, "relay")
_CONSUME = "consume"
#: Transports of this process by their URL, with the queues that were declared through each.
_transports: dict[str, tuple[Transport, list[QueueSpec]]] = {}
#: Heartbeats of this process, by service, kind and queues.
_heartbeats: dict[tuple[str, str, tuple[str, ...]], RunHeartbeat] = {}
#: When each background task of this process is due again, by its name.
_throttles: dict[str, Throttle] = {}


class RunHeartbeat(Heartbeat):
    """Beats at the begin and the end of a run; its row stays until the next run."""

    def __init__(self, kind: str, queues: Sequence[str]) -> None:
        worker = this_process(kind, queues)
        # Any process of a pool may have the next run: a row for each would look dead.
        worker.id = uuid5(_NAMESPACE, f"{conf.service} {kind}")
        super().__init__(worker)
        # Each process writes the counts of a minute as a whole, so it needs its own id.
        self.counter_id = uuid7()

    @contextmanager
    def run(self, within: float, every: float) -> Iterator[None]:
        """Count in the block; the run may last *within* seconds and comes every *every* seconds."""
        rest = timedelta(seconds=every * _MISSED)
        with self.recording():
            self._beat_for(timedelta(seconds=within) + rest)
            try:
                yield
            finally:
                self._beat_for(rest)

    def _beat_for(self, patience: timedelta) -> None:
        self.patience = max(patience, SILENCE)
        # The run reports an outage itself.
        with suppress(Error):
            self.beat()


def relay_ready(using: str, within: float, every: float) -> int:
    """Publish ready rows for at most *within* seconds; return 0 if another relay holds the lease."""
    relayed, deadline = 0, time.monotonic() + within
    run = _heartbeat(Worker.Kind.RELAY).run(within, every)
    with run, _outage_announced(f"relay {using}"):
        relay = Relay(_transport().publisher(), using)
        loop = RelayLoop(relay, threading.Event(), once=True)
        try:
            while (count := loop.step()) or loop.plans.moved:
                relayed += count
                if time.monotonic() > deadline:
                    break
        finally:
            relay.close()
    return relayed


def consume_due(within: float, every: float) -> None:
    """Handle due messages for at most *within* seconds, and finish the current ones."""
    if not registry.queues():
        return
    heartbeat = _heartbeat(Worker.Kind.CONSUMER)
    with heartbeat.run(within, every), _outage_announced(_CONSUME):
        transport = _transport()
        _consume(transport, within)
        with suppress(BrokerRefused, Error):
            _run_background_tasks(transport, heartbeat.worker)


def _run_background_tasks(transport: Transport, worker: Worker) -> None:
    """Run each background task of a worker command that is due."""
    for task in background_tasks(transport, worker, threading.Event()):
        if _throttles.setdefault(task.name, Throttle(task.every)).is_due():
            task.work()


def _consume(transport: Transport, within: float) -> None:
    # Each loop has its own stop event: an idle loop must not end the others.
    loops = list(
        consumer_loops(
            transport, registry.queues(), threading.Event, prefetch=1, is_idle=lambda: True
        )
    )
    timer = threading.Timer(within, _stop, [loops])
    timer.daemon = True
    timer.start()
    try:
        _run(loops)
    finally:
        timer.cancel()
        for loop in loops:
            loop.close()


def _heartbeat(kind: str) -> RunHeartbeat:
    queues = tuple(registry.queues()) if kind == Worker.Kind.CONSUMER else ()
    return _heartbeats.setdefault((conf.service, kind, queues), RunHeartbeat(kind, queues))


def _stop(loops: Sequence[ConsumerLoop]) -> None:
    for loop in loops:
        loop.stop.set()


def _run(loops: Sequence[ConsumerLoop]) -> None:
    if len(loops) == 1:
        loops[0].run()
        return
    crew = Crew()
    for loop in loops:
        crew.add("turn", loop.run)
    crew.run()


def prune_settled(older_than: Duration, using: str) -> dict[str, int]:
    """Remove settled rows older than *older_than*."""
    age = seconds(older_than)
    if age < SHORTEST_AGE:
        raise ValueError('older_than must be at least "1m": younger messages may still be in use')
    return prune(timezone.now() - timedelta(seconds=age), using=using)


@contextmanager
def _outage_announced(operation: str) -> Iterator[None]:
    """End the run in an outage without an error; the next run tries again."""
    try:
        yield
    except Unavailable as error:
        # Each kind of run may succeed while another one cannot.
        error.operation = operation
        _watch.begin(error)
    else:
        _watch.end([operation])


def _transport() -> Transport:
    url, specs = conf.broker_url, queue_specs()
    transport, declared = _transports.get(url) or (transports.connect(url), [])
    # Once per process, because it takes many requests to a broker.
    if specs != declared:
        transport.declare(specs)
        _transports[url] = transport, specs
    return transport
