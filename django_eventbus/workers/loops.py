"""The loops of a worker process: consume, consume in order, relay."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count

from django.db import close_old_connections, connections

from django_eventbus.conf import conf
from django_eventbus.consumer.consumer import Consumer
from django_eventbus.consumer.deliveries import DeadDelivery
from django_eventbus.consumer.dlq_collector import Collector
from django_eventbus.consumer.ordered import OrderedConsumer
from django_eventbus.dead_letters.broker_deaths import owning_queue
from django_eventbus.events.system import is_system_event
from django_eventbus.exceptions import BrokerUnavailable, Unavailable
from django_eventbus.outages import OutageWatch, is_away, use_of
from django_eventbus.outbox.relay import Relay
from django_eventbus.redrive.runner import PlanRunner
from django_eventbus.subscriptions.outcomes import Duplicate, Retry
from django_eventbus.subscriptions.subscription import Settlement, registry
from django_eventbus.transports.contract import Delivery, Subscriber, Transport
from django_eventbus.workers.crew import close_broken_connections

_SHORT_PAUSE = 0.02

#: Operations of a consumer that an outage may stop, beside the use of databases.
_RECEIVE, _PUBLISH = "receive", "publish"

#: Seconds between two steps of plans: a busy relay loops many times a second, and a step costs
#: the same for one dead letter as for a hundred.
PLAN_PAUSE = 0.1


class MessageLimit:
    """The number of messages that may still be handled; None means unlimited. Shared by all loops."""

    def __init__(self, limit: int | None) -> None:
        self._lock = threading.Lock()
        self._to_receive = self._to_settle = limit

    def acquire(self) -> bool:
        """Reserve one message; return whether the limit allows it."""
        with self._lock:
            if self._to_receive is None:
                return True
            if self._to_receive == 0:
                return False
            self._to_receive -= 1
            return True

    def release(self) -> None:
        """Give a reserved message back."""
        with self._lock:
            if self._to_receive is not None:
                self._to_receive += 1

    def settle(self) -> None:
        with self._lock:
            if self._to_settle is not None:
                self._to_settle -= 1

    @property
    def is_used_up(self) -> bool:
        return self._to_settle == 0


class ConsumerLoop:
    """Receives from queues and consumes. Several threads may run it."""

    def __init__(
        self,
        transport: Transport,
        queues: Sequence[str],
        stop: threading.Event,
        *,
        prefetch: int,
        limit: MessageLimit | None = None,
        is_idle: Callable[[], bool] | None = None,
    ) -> None:
        self.queues = queues
        #: The DLQs that are collected, with their queues.
        self.collected = collected_queues(transport, queues)
        self.subscriber: Subscriber = transport.subscriber([*queues, *self.collected], prefetch)
        self.stop = stop
        self.consumer = self._build_consumer(transport)
        self.collector = Collector(self.consumer.publisher)
        self.watch = OutageWatch(Consumer, "consumer")
        self.limit = limit or MessageLimit(None)
        self._deliveries = count(1)
        #: The number of the latest delivery.
        self.received = 0
        #: Called when no message is due; the crew stops if it returns True.
        self.is_idle = is_idle

    def _build_consumer(self, transport: Transport) -> Consumer:
        return Consumer(transport.publisher(), transport.dead_letter_queue)

    def thread_names(self, threads: int) -> list[str]:
        """Return the names of the threads that run this loop."""
        return [f"handler {number}" for number in range(1, threads + 1)]

    def run(self) -> None:
        self.watch.repeat(self.step, self.stop)

    def close(self) -> None:
        self.subscriber.close()
        self.consumer.publisher.close()

    def step(self) -> set[str]:
        """
        Consume one delivery, or wait for one for at most POLL_INTERVAL.

        Return the operations that have succeeded: an outage of another one is not over.
        """
        close_broken_connections()
        self.watch.probe(self._is_available)
        if not self.limit.acquire():
            self.stop.wait(_SHORT_PAUSE)
            return set()
        if delivery := self._receive():
            return {_RECEIVE, *self._consume(delivery)}
        close_old_connections()
        if self.is_idle and not self.stop.wait(_SHORT_PAUSE):
            self._stop_if_idle(self.is_idle)
        return {_RECEIVE}

    def _is_available(self, operation: str) -> bool:
        """Whether the server of an operation that has failed answers now."""
        if operation == _PUBLISH:
            try:
                self.consumer.publisher.open()
            except Unavailable:
                return False
        using = next((each for each in connections if use_of(each) == operation), None)
        # Each step receives, so that only a delivery, or an empty queue, proves it.
        return operation != _RECEIVE and not (using and is_away(using))

    def _receive(self) -> Delivery | None:
        try:
            delivery = self.subscriber.receive(0 if self.is_idle else conf.poll_interval)
        except Unavailable as error:
            self.limit.release()
            error.operation = _RECEIVE
            raise
        if delivery is None:
            self.limit.release()
        else:
            self.received = next(self._deliveries)
        return delivery

    def _consume(self, delivery: Delivery) -> set[str]:
        """Consume *delivery*; return the operations that have succeeded."""
        is_collected = delivery.queue in self.collected
        try:
            settlements = (
                self._collect(delivery) if is_collected else self.consumer.consume(delivery)
            )
        except Unavailable as error:
            self.limit.release()
            if isinstance(error, BrokerUnavailable):
                error.operation = _PUBLISH
            raise
        if is_collected or is_system_event(delivery.message):
            # The limit counts only messages for handlers.
            self.limit.release()
        else:
            self.limit.settle()
            if self.limit.is_used_up:
                self.stop.set()
        return _succeeded(delivery, settlements)

    def _collect(self, delivery: Delivery) -> list[Settlement]:
        queue = owning_queue(delivery.message, self.collected[delivery.queue])
        return self.collector.consume(DeadDelivery(delivery=delivery, queue=queue))

    def _stop_if_idle(self, is_idle: Callable[[], bool]) -> None:
        # The order matters: the events of a handler are in the outbox before its message is
        # settled, and a relayed row is in its queue before it is marked.
        is_drained = self.subscriber.is_drained
        try:
            if is_drained() and is_idle() and is_drained():
                self.stop.set()
        except BrokerUnavailable as error:
            error.operation = _RECEIVE
            raise


class OrderedConsumerLoop(ConsumerLoop):
    """Consumes one ordered queue in one thread; a second thread would break the order."""

    def __init__(
        self,
        transport: Transport,
        queue: str,
        stop: threading.Event,
        *,
        limit: MessageLimit | None = None,
        is_idle: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__(transport, [queue], stop, prefetch=1, limit=limit, is_idle=is_idle)
        self._interrupted: Delivery | None = None

    def _build_consumer(self, transport: Transport) -> Consumer:
        return OrderedConsumer(transport.publisher(), transport.dead_letter_queue, self.stop)

    def thread_names(self, threads: int) -> list[str]:
        return [f"handler of {self.queues[0]}"]

    def run(self) -> None:
        try:
            super().run()
        finally:
            # Not later, with the other loops: while a long handler keeps the process, nobody
            # would work on this queue.
            self.subscriber.close()

    def _receive(self) -> Delivery | None:
        # Continue with the same delivery after an outage: returned, it might come after the next.
        interrupted, self._interrupted = self._interrupted, None
        return interrupted or super()._receive()

    def _consume(self, delivery: Delivery) -> set[str]:
        try:
            return super()._consume(delivery)
        except Unavailable:
            self._interrupted = delivery
            raise


def _succeeded(delivery: Delivery, settlements: Iterable[Settlement]) -> set[str]:
    """Return the operations that *settlements* prove."""
    # Not every message uses the database of a subscription, or publishes a copy.
    succeeded = {use_of(each.subscription.using) for each in settlements if each.subscription}
    for each in settlements:
        match each.outcome:
            case Retry(by_tier=True) | Duplicate(delay=float()):
                if not registry.is_ordered(delivery.queue):
                    succeeded.add(_PUBLISH)
    return succeeded


def consumer_loops(
    transport: Transport,
    queues: Sequence[str],
    stop_event: Callable[[], threading.Event],
    *,
    prefetch: int,
    limit: MessageLimit | None = None,
    is_idle: Callable[[], bool] | None = None,
) -> Iterator[ConsumerLoop]:
    """Yield a loop for all unordered queues together, and one for each ordered queue."""
    if unordered := [queue for queue in queues if not registry.is_ordered(queue)]:
        yield ConsumerLoop(
            transport, unordered, stop_event(), prefetch=prefetch, limit=limit, is_idle=is_idle
        )
    for queue in filter(registry.is_ordered, queues):
        yield OrderedConsumerLoop(transport, queue, stop_event(), limit=limit, is_idle=is_idle)


def collected_queues(transport: Transport, queues: Iterable[str]) -> dict[str, list[str]]:
    """Return the DLQs to collect into dead letters, each with its queues."""
    if conf.collect_dlq is False or not transport.owns_dead_letter_queues():
        return {}
    collected: dict[str, list[str]] = {}
    for queue in queues:
        if dlq := transport.dead_letter_queue(queue):
            collected.setdefault(dlq, []).append(queue)
    return collected


class RelayLoop:
    """Runs plans and relays the outbox of one database until stopped, or once."""

    def __init__(self, relay: Relay, stop: threading.Event, *, once: bool = False) -> None:
        self.relay = relay
        # A loop that runs once takes every step without a pause.
        self.plans = PlanRunner(relay.using, pause=0.0 if once else PLAN_PAUSE)
        self.stop = stop
        self.once = once
        self.watch = OutageWatch(Relay, "relay")

    def run(self) -> None:
        try:
            self.watch.repeat(self._step_or_wait, self.stop)
        finally:
            self.relay.close()

    def step(self) -> int:
        """Run plans, then relay the ready rows; return how many rows were relayed."""
        # First: without a broker nothing is re-driven, since no outcome could be recorded.
        self.relay.open()
        self.plans.run_once()
        return self.relay.relay_once()

    def _step_or_wait(self) -> None:
        close_broken_connections()
        if self.step() or self.plans.moved:
            return
        close_old_connections()
        if self.once and self.relay.is_our_turn:
            self.stop.set()
        pause = min(conf.poll_interval, PLAN_PAUSE) if self.plans.has_work_soon else None
        self.stop.wait(pause or conf.poll_interval)


class IdleCheck:
    """Whether queues, outboxes and plans have no work left. Called from many threads."""

    def __init__(
        self, consumer_loops: Sequence[ConsumerLoop], relay_loops: Sequence[RelayLoop]
    ) -> None:
        self.consumer_loops = consumer_loops
        self.relay_loops = relay_loops
        #: The numbers of received messages, and the time when all of them were first seen settled.
        self._settled: tuple[list[int], float] = ([], 0.0)

    def __call__(self) -> bool:
        # Before the queues: a message received later restarts the wait of the next call.
        received = [loop.received for loop in self.consumer_loops]
        # The queues are checked twice: a row that is relayed in between is in a queue.
        return (
            self._are_drained()
            and not any(loop.relay.has_ready_rows() for loop in self.relay_loops)
            and self._are_plans_idle(received)
            and self._are_drained()
        )

    def _are_drained(self) -> bool:
        return all(loop.subscriber.is_drained() for loop in self.consumer_loops)

    def _are_plans_idle(self, received: list[int]) -> bool:
        seen, since = self._settled
        if seen != received:
            since = time.monotonic()
            self._settled = (received, since)
        # A plan may wait for the outcome of a handled message, so it must run a step after it.
        return all(loop.plans.is_idle_since(since) for loop in self.relay_loops)
