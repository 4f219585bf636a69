"""An outage of a consumer ends when what failed has succeeded, and not when something else has."""

from __future__ import annotations

import threading

import pytest

from django_eventbus import outages, signals
from django_eventbus.conf import conf
from django_eventbus.exceptions import BrokerUnavailable
from django_eventbus.transports.database.publisher import DatabasePublisher
from django_eventbus.workers.loops import ConsumerLoop
from tests.support.helpers import eventually

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def heard():
    heard = []

    def hear(kind, over, **kwargs):
        heard.append((kind, over))

    signals.outage.connect(hear)
    yield heard
    signals.outage.disconnect(hear)


@pytest.fixture
def loop(bus):
    loop = ConsumerLoop(bus.transport, [conf.queue()], threading.Event(), prefetch=1)
    yield loop
    loop.close()


def turn(loop):
    """Do what a thread of the loop does until a step succeeds."""
    loop.watch.succeed(loop.step, loop.stop)


class AlarmedPublisher(DatabasePublisher):
    """Accepts nothing while there is an alarm, as a publisher of RabbitMQ does."""

    is_alarm = True
    refused = 0

    def publish(self, batch):
        if self.is_alarm:
            self.refused += 1
            raise BrokerUnavailable("The broker has raised an alarm.", kind="blocked")
        return super().publish(batch)


def test_neither_an_empty_queue_nor_another_message_ends_an_outage_of_publishing(
    bus, heard, loop, settings, monkeypatch
):
    settings.EVENTBUS = {**settings.EVENTBUS, "POLL_INTERVAL": "10ms"}
    monkeypatch.setattr("django_eventbus.consumer.consumer._OUTAGE_PAUSE", 0.05)
    monkeypatch.setattr(outages, "OUTAGE_WAIT", (0.01, 0.01))
    publisher = loop.consumer.publisher = AlarmedPublisher("default")
    shipped = []
    bus.subscribe("order.paid", name="ship")(shipped.append)

    @bus.subscribe("order.placed", name="charge", retry=["1h"])
    def charge(event):
        raise ValueError("a retry has to be published")

    bus.put(type="order.placed", routing_key="order.placed")
    bus.put(type="order.paid", routing_key="order.paid")
    while publisher.refused < 3:
        turn(loop)
    turn(loop)
    assert shipped
    assert heard == [("blocked", False)]

    publisher.is_alarm = False
    eventually(lambda: turn(loop) or len(heard) > 1)

    assert heard == [("blocked", False), ("blocked", True)]
