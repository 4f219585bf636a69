"""A turn of work in somebody else's process: bounded in time, harmless beside others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import timedelta

from django.db import Error
from django.utils import timezone

from django_eventbus import transports
from django_eventbus.conf import conf
from django_eventbus.contrib.turn_heartbeat import TurnHeartbeat
from django_eventbus.durations import Duration, seconds
from django_eventbus.errands import ErrandRunner
from django_eventbus.exceptions import BrokerRefused, Unavailable
from django_eventbus.intervals import Interval
from django_eventbus.measuring import LOOK_EVERY, Gauge
from django_eventbus.models import Worker
from django_eventbus.observability.statsd import StatsdSink
from django_eventbus.ordered_workers import OrderedWorkers
from django_eventbus.outages import OutageWatch
from django_eventbus.pruning import SHORTEST_AGE, prune
from django_eventbus.readings import Reporter
from django_eventbus.relay import Relay
from django_eventbus.subscriptions import registry
from django_eventbus.transports.contract import QueueSpec, Transport
from django_eventbus.workers import ConsumerWorkers, Crew, queue_specs

#: Of this process, over all its turns: an outage is told once at each end.
_watch = OutageWatch(Relay)
#: Transports of this process, by their URL, with what was declared through each.
_transports: dict[str, tuple[Transport, list[QueueSpec]]] = {}
#: Heartbeats of this process, by service, kind and queues.
_heartbeats: dict[tuple[str, str, tuple[str, ...]], TurnHeartbeat] = {}
_looks = Interval(LOOK_EVERY)


def relay_ready(using: str, within: float, every: float) -> int:
    """Send what is ready, for at most *within* seconds; 0 also while another relay has its turn."""
    relayed, deadline = 0, time.monotonic() + within
    with _heartbeat(Worker.Kind.RELAY).turn(within, every), _outage_told():
        relay = Relay(_transport().publisher(), using)
        try:
            while (count := relay.relay_once()) or relay.plans.moved:
                relayed += count
                if time.monotonic() > deadline:
                    break
        finally:
            relay.close()
    return relayed


def consume_due(within: float, every: float) -> None:
    """Handle what is due, for at most *within* seconds and the messages in hand."""
    if not registry.queues():
        return
    heartbeat = _heartbeat(Worker.Kind.CONSUMER)
    with heartbeat.turn(within, every), _outage_told():
        transport = _transport()
        _consume(transport, within)
        with suppress(BrokerRefused, Error):
            _look_aside(transport, heartbeat.worker)


def _look_aside(transport: Transport, worker: Worker) -> None:
    """Do what a command does in sidelines: errands, a look how full the queues are, a report."""
    ErrandRunner(transport, worker, threading.Event()).look()
    if _looks.is_due():
        Gauge(transport, queue_specs, worker).look()
        if conf.statsd:
            with closing(StatsdSink(conf.statsd)) as sink:
                Reporter(sink, worker).look()


def _consume(transport: Transport, within: float) -> None:
    workers = _workers(transport)
    timer = threading.Timer(within, _stop, [workers])
    timer.daemon = True
    timer.start()
    try:
        _run(workers)
    finally:
        timer.cancel()
        for each in workers:
            each.close()


def _heartbeat(kind: str) -> TurnHeartbeat:
    queues = tuple(registry.queues()) if kind == Worker.Kind.CONSUMER else ()
    return _heartbeats.setdefault((conf.service, kind, queues), TurnHeartbeat(kind, queues))


def _workers(transport: Transport) -> list[ConsumerWorkers]:
    """Return the workers of a turn: those of ordered queues beside the others, as in a command."""
    queues = registry.queues()
    # Each with a stop of its own: one that has nothing to do must not end the others.
    workers: list[ConsumerWorkers] = [
        OrderedWorkers(transport, queue, threading.Event(), is_idle=_is_idle)
        for queue in filter(registry.is_ordered, queues)
    ]
    if unordered := [queue for queue in queues if not registry.is_ordered(queue)]:
        stop = threading.Event()
        workers.append(ConsumerWorkers(transport, unordered, stop, prefetch=1, is_idle=_is_idle))
    return workers


def _is_idle() -> bool:
    return True


def _stop(workers: list[ConsumerWorkers]) -> None:
    for each in workers:
        each.stop.set()


def _run(workers: list[ConsumerWorkers]) -> None:
    if len(workers) == 1:
        workers[0].loop()
        return
    crew = Crew()
    for each in workers:
        crew.add("turn", each.loop)
    crew.run()


def prune_settled(older_than: Duration, using: str) -> dict[str, int]:
    """Remove what is settled and older than *older_than*."""
    age = seconds(older_than)
    if age < SHORTEST_AGE:
        raise ValueError('older_than must be at least "1m": younger messages are under way')
    return prune(timezone.now() - timedelta(seconds=age), using=using)


@contextmanager
def _outage_told() -> Iterator[None]:
    """End the turn in an outage, which is not its failure: the next one tries again."""
    try:
        yield
    except Unavailable as error:
        _watch.begin(error)
    else:
        _watch.end()


def _transport() -> Transport:
    url, specs = conf.broker_url, queue_specs()
    transport, declared = _transports.get(url) or (transports.connect(url), [])
    # Once per process, as the commands do at their start: it is many questions to a broker.
    if specs != declared:
        transport.declare(specs)
        _transports[url] = transport, specs
    return transport
