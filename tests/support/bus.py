"""Drive the whole pipeline from a test, in its own thread, on the database transport."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.utils import timezone

from django_eventbus import subscribe, transports
from django_eventbus.conf import conf
from django_eventbus.consumer.consumer import Consumer
from django_eventbus.events.message import Message, uuid7
from django_eventbus.models import DeadLetter, OutboxEvent, QueuedMessage
from django_eventbus.outbox.relay import Relay
from django_eventbus.subscriptions.outcomes import Outcome
from django_eventbus.subscriptions.queue_specs import queue_specs
from django_eventbus.subscriptions.subscription import Settlement, Subscription, registry
from django_eventbus.testing.fast_forward import make_due
from django_eventbus.transports.contract import Delivery, Outgoing, ToQueue
from django_eventbus.workers.loops import RelayLoop
from tests.support.helpers import eventually


class Bus:
    """One service: its relay, its consumer, and a clock that can be turned."""

    def __init__(self, using: str = "default") -> None:
        self.using = using
        self.transport = transports.connect(conf.broker_url)
        self.publisher = self.transport.publisher()
        self.start_relay()
        self.consumer = Consumer(self.publisher)

    def subscribe(self, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
        """Subscribe for this test only."""

        def register(handler: Any) -> Any:
            subscribe(*args, **kwargs)(handler)
            self.transport.declare(queue_specs())
            return handler

        return register

    def start_relay(self) -> None:
        """Have a relay, in place of one that was closed."""
        self.relayer = Relay(self.publisher, self.using)
        self.relay_loop = RelayLoop(self.relayer, threading.Event(), once=True)

    def relay(self) -> int:
        return self.relay_loop.step()

    def receive(self, queue: str = "") -> Delivery | None:
        subscriber = self.transport.subscriber([conf.queue(queue)], prefetch=1)
        delivery = subscriber.receive(0)
        subscriber._unsettled.clear()  # type: ignore[attr-defined]
        subscriber.close()
        return delivery

    def consume(self, queue: str = "") -> list[Outcome]:
        """Consume the next delivery of *queue*; return what became of it."""
        delivery = self.receive(queue)
        assert delivery, f"nothing is due in {conf.queue(queue)}"
        return [settlement.outcome for settlement in self.settle(delivery)]

    def consume_after_a_cut(self, queue: str = "") -> list[Outcome]:
        """Consume; again while the server has not yet noticed that the last session is gone."""

        def consume_when_due() -> list[Outcome]:
            self.pass_time()
            return self.consume(queue)

        return eventually(consume_when_due)

    def settle(self, delivery: Delivery) -> list[Settlement]:
        return self.consumer.consume(delivery)

    def drain(self) -> None:
        """Relay and consume until nothing is due, now or later: time passes as it has to."""
        for _ in range(200):
            self.pass_time()
            relayed = self.relay()
            queued = [each.queue for each in QueuedMessage.objects.order_by("pk")]
            for queue in queued:
                if delivery := self.receive(queue.removeprefix(conf.queue()).lstrip(".")):
                    self.settle(delivery)
            if not relayed and not queued:
                return
        raise AssertionError("the bus does not come to rest")

    def pass_time(self) -> None:
        """Make everything due that waits."""
        QueuedMessage.objects.update(available_at=F("available_at") - timedelta(days=3650))
        make_due(self.using)
        held = OutboxEvent.objects.filter(state="scheduled").exclude(error="")
        held.update(due_at=timezone.now())

    def put(self, message: Message | None = None, queue: str = "", **changes: Any) -> Message:
        """Put a message into *queue*, as a stranger would."""
        values = {"id": str(uuid7()), "type": "order.placed", "body": b"{}", **changes}
        message = message or Message(**values)
        self.publisher.publish(
            [Outgoing(address=ToQueue(queue=conf.queue(queue)), message=message)]
        )
        return message

    @property
    def letter(self) -> DeadLetter:
        """The only dead letter."""
        return DeadLetter.objects.get()


@contextmanager
def table_away(name: str) -> Iterator[None]:
    """Make statements on a table fail, without the database being away."""
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {name} RENAME TO elsewhere")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE elsewhere RENAME TO {name}")


@pytest.fixture
def no_subscriptions() -> Iterator[None]:
    """Hide the subscriptions of the test project's apps."""
    kept: list[Subscription] = list(registry)
    for each in kept:
        registry.remove(each)
    yield
    for each in list(registry):
        registry.remove(each)
    for each in kept:
        registry.add(each)


@pytest.fixture
def bus(transactional_db: None, no_subscriptions: None) -> Bus:
    """A service without subscriptions."""
    return Bus()
