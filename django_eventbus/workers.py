"""Threads: relays and consumers as loops that start, stop and fail together."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from types import FrameType

from django.db import close_old_connections, connections

from django_eventbus.allowance import Allowance
from django_eventbus.collector import Collector, DeadDelivery
from django_eventbus.conf import conf
from django_eventbus.consumer import Consumer
from django_eventbus.deaths import home_of
from django_eventbus.exceptions import EventBusError, Unavailable
from django_eventbus.outages import OutageWatch
from django_eventbus.plan_steps import PlanTurns
from django_eventbus.relay import Relay
from django_eventbus.routing import EVENTS, exchange_of
from django_eventbus.subscriptions import Subscription, default_policy, registry
from django_eventbus.system_events import PATTERN, PINGS, is_system_event
from django_eventbus.transports.contract import Delivery, QueueSpec, Subscriber, Transport

logger = logging.getLogger(__name__)

#: How long the main thread waits at a time: signals are only seen in between.
_TICK = 0.2
_SHORT_PAUSE = 0.02
#: A busy relay goes round many times a second; a step costs the same for one as for a hundred.
PLAN_PAUSE = 0.1


class LoopFailed(EventBusError):
    """A loop ended by an error that nothing expects; the log has the traceback."""


class Crew:
    """Named loops, a thread each, that stop together."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failure: tuple[str, BaseException] | None = None
        #: Not the same as stop, which also a limit or a failed loop sets.
        self._was_signalled = False

    def add(self, name: str, loop: Callable[[], None]) -> None:
        thread = threading.Thread(target=self._watch, args=(name, loop), name=name, daemon=True)
        self._threads.append(thread)

    def run(self) -> None:
        """Run all loops to their end; raise LoopFailed if one of them failed."""
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            while thread.is_alive():
                thread.join(_TICK)
        if self._failure:
            name, error = self._failure
            words = str(error) if isinstance(error, EventBusError) else f"{type(error).__name__}."
            raise LoopFailed(f"The {name} stopped: {words}") from error

    def _watch(self, name: str, loop: Callable[[], None]) -> None:
        try:
            loop()
        except EventBusError as error:
            # A broker that says no: its words are all there is to know. Each loop hears them.
            if not self._failure:
                logger.critical("The %s stopped: %s", name, error)
            self._fail(name, error)
        except BaseException as error:
            logger.critical("The %s stopped by an unexpected error.", name, exc_info=True)
            self._fail(name, error)
        finally:
            connections.close_all()

    def _fail(self, name: str, error: BaseException) -> None:
        self._failure = self._failure or (name, error)
        self.stop.set()

    @contextmanager
    def stopping_on_signals(self) -> Iterator[None]:
        """Finish the work in hand on SIGTERM or SIGINT; stop at once on the second."""
        # Only the main thread may; a test that calls a command from another goes without.
        numbers = (signal.SIGTERM, signal.SIGINT) if _is_main_thread() else ()
        former = {number: signal.signal(number, self._on_signal) for number in numbers}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._was_signalled:
            os._exit(128 + number)
        self._was_signalled = True
        self.stop.set()
        os.write(2, b"Finishing the work in hand; a second signal stops at once.\n")


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


class ConsumerWorkers:
    """Handler threads over one subscriber."""

    def __init__(
        self,
        transport: Transport,
        queues: Iterable[str],
        stop: threading.Event,
        *,
        prefetch: int,
        limit: int | None = None,
        is_idle: Callable[[], bool] | None = None,
    ) -> None:
        queues = list(queues)
        #: The DLQs that are collected, each with the queues that it belongs to.
        self.collected = collected_queues(transport, queues)
        self.subscriber: Subscriber = transport.subscriber([*queues, *self.collected], prefetch)
        publisher = transport.publisher()
        self.consumer = Consumer(publisher, transport.dead_letter_queue)
        self.collector = Collector(publisher)
        self.stop = stop
        self.watch = OutageWatch(Consumer)
        self.allowance = Allowance(limit)
        self._deliveries = count(1)
        #: The number of the latest delivery.
        self.received = 0
        #: Asked when nothing is due; if it agrees that there is nothing to do, the crew stops.
        self.is_idle = is_idle

    def loop(self) -> None:
        self.watch.repeat(self._step, self.stop)

    def close(self) -> None:
        self.subscriber.close()
        self.consumer.publisher.close()

    def _step(self) -> None:
        close_broken_connections()
        if not self.allowance.take():
            self.stop.wait(_SHORT_PAUSE)
        elif delivery := self._received():
            self._consume(delivery)
        else:
            self._rest()

    def _rest(self) -> None:
        close_old_connections()
        if self.is_idle and not self.stop.wait(_SHORT_PAUSE):
            self._stop_if_idle(self.is_idle)

    def _received(self) -> Delivery | None:
        try:
            delivery = self.subscriber.receive(0 if self.is_idle else conf.poll_interval)
        except Unavailable:
            self.allowance.give_back()
            raise
        if delivery is None:
            self.allowance.give_back()
        else:
            self.received = next(self._deliveries)
        return delivery

    def _consume(self, delivery: Delivery) -> None:
        try:
            is_collected = self._collect(delivery)
            if not is_collected:
                self.consumer.consume(delivery)
        except Unavailable:
            self.allowance.give_back()
            raise
        if is_collected or is_system_event(delivery.message):
            # A limit is on what handlers are given.
            self.allowance.give_back()
            return
        self.allowance.settle()
        if self.allowance.is_used_up:
            self.stop.set()

    def _collect(self, delivery: Delivery) -> bool:
        queues = self.collected.get(delivery.queue)
        if queues is None:
            return False
        queue = home_of(delivery.message, queues)
        self.collector.consume(DeadDelivery(delivery=delivery, queue=queue))
        return True

    def _stop_if_idle(self, is_idle: Callable[[], bool]) -> None:
        # Asked in this order: a handler's events are in the outbox before it is settled, and a
        # relayed row is in its queue before it is marked.
        is_drained = self.subscriber.is_drained
        if is_drained() and is_idle() and is_drained():
            self.stop.set()


class RelayLoop:
    """A relay that works until told to stop, or until nothing is ready."""

    def __init__(self, relay: Relay, stop: threading.Event, *, once: bool = False) -> None:
        # One that is to end takes every step there is.
        relay.plans = PlanTurns(relay.using, 0.0 if once else PLAN_PAUSE)
        self.relay = relay
        self.stop = stop
        self.once = once
        self.watch = OutageWatch(Relay)

    def loop(self) -> None:
        try:
            self.watch.repeat(self._step, self.stop)
        finally:
            self.relay.close()

    def _step(self) -> None:
        close_broken_connections()
        if self.relay.relay_once() or self.relay.plans.moved:
            return
        close_old_connections()
        if self.once and self.relay.is_our_turn:
            self.stop.set()
        is_awaited = self.relay.plans.is_going_on
        self.stop.wait(min(conf.poll_interval, PLAN_PAUSE) if is_awaited else conf.poll_interval)


def close_broken_connections() -> None:
    """Close this thread's database connections that an error has left unusable."""
    # Not close_old_connections(): with CONN_MAX_AGE at its default of 0 that would connect
    # anew for each message. It is called when there is nothing to do.
    for connection in connections.all(initialized_only=True):
        if connection.errors_occurred:
            connection.close_if_unusable_or_obsolete()


def declare(transport: Transport, stop: threading.Event) -> None:
    """Make this project's queues exist, waiting for the broker if need be."""
    OutageWatch(Transport).succeed(lambda: transport.declare(queue_specs()), stop)


def collected_queues(transport: Transport, queues: Iterable[str]) -> dict[str, list[str]]:
    """Return the DLQs to collect into dead letters, each with the queues that it belongs to."""
    if conf.collect_dlq is False or not transport.owns_dead_letter_queues():
        return {}
    collected: dict[str, list[str]] = {}
    for queue in queues:
        if dlq := transport.dead_letter_queue(queue):
            collected.setdefault(dlq, []).append(queue)
    return collected


def queue_specs() -> list[QueueSpec]:
    """Return the queues that this project's subscriptions need."""
    return [_spec(queue) for queue in registry.queues()]


def _spec(queue: str) -> QueueSpec:
    subscriptions = registry.on_queue(queue)
    delays = {delay for each in subscriptions for delay in each.policy.delays}
    home = conf.events_exchange
    bindings = {_binding(each) for each in subscriptions}
    return QueueSpec(
        name=queue,
        exchange=home,
        patterns=tuple(sorted(key for exchange, key in bindings if exchange == home)),
        delays=tuple(sorted(delays | set(default_policy().delays))),
        elsewhere=tuple(sorted(each for each in bindings if each[0] != home)),
        system=tuple(_system_bindings()),
        is_ordered=registry.is_ordered(queue),
    )


def _binding(subscription: Subscription) -> tuple[str, str]:
    return subscription.exchange, subscription.route.binding_key_of(subscription.pattern)


def _system_bindings() -> Iterator[tuple[str, str]]:
    # A direct exchange knows no wildcards.
    patterns = PINGS if EVENTS.exchange_type == "direct" else (PATTERN,)
    for each in patterns:
        yield exchange_of(EVENTS, PATTERN), EVENTS.binding_key_of(each)
