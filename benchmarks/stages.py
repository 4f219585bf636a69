"""Run one contestant in its own process; print messages and seconds as JSON."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import django

django.setup()

import pika  # noqa: E402

from benchmarks.payloads import payload  # noqa: E402
from django_eventbus import publish_many, transports  # noqa: E402
from django_eventbus.conf import conf  # noqa: E402
from django_eventbus.events.message import ROW  # noqa: E402
from django_eventbus.models import OutboxEvent  # noqa: E402
from django_eventbus.outbox.relay import Relay  # noqa: E402
from django_eventbus.subscriptions.queue_specs import queue_specs  # noqa: E402
from django_eventbus.transports.rabbitmq.encoding import properties_of  # noqa: E402

#: The maximum number of unconfirmed messages of the raw client.
WINDOW = 1000


def write_rows(count: int) -> None:
    """Fill the outbox. This is not measured."""
    OutboxEvent.objects.all().delete()
    transports.connect(conf.broker_url).declare(queue_specs())
    for start in range(0, count, 1000):
        numbers = range(start, min(start + 1000, count))
        publish_many([("order.placed", payload(number)) for number in numbers])


def relay(count: int) -> float:
    """Relay all rows, from the claim to the mark."""
    write_rows(count)
    carrier = Relay(transports.connect(conf.broker_url).publisher(), "default")
    began = time.perf_counter()
    while carrier.relay_once():
        pass
    seconds = time.perf_counter() - began
    carrier.close()
    assert OutboxEvent.objects.filter(state="published").count() == count
    return seconds


def raw(count: int) -> float:
    """Send the same messages with pika only."""
    write_rows(count)
    messages = []
    for row in OutboxEvent.objects.order_by("id"):
        properties = properties_of(row.message(**{ROW: row.pk}))
        messages.append((row.exchange, row.routing_key, bytes(row.body), properties))
    return RawClient(messages).run()


class RawClient:
    """A SelectConnection of pika: mandatory messages, with WINDOW pipelined confirms."""

    def __init__(self, messages: list[tuple[str, str, bytes, Any]]) -> None:
        self.messages = iter(messages)
        self.unconfirmed = 0
        self.sent = 0
        self.to_confirm = len(messages)
        self.seconds = 0.0

    def run(self) -> float:
        parameters = pika.URLParameters(conf.broker_url)
        self.connection = pika.SelectConnection(parameters, on_open_callback=self.on_open)
        self.connection.ioloop.start()
        assert not self.to_confirm
        return self.seconds

    def on_open(self, connection: Any) -> None:
        connection.channel(on_open_callback=self.on_channel)

    def on_channel(self, channel: Any) -> None:
        self.channel = channel
        channel.add_on_return_callback(self.on_returned)
        channel.confirm_delivery(self.on_confirmed, callback=self.on_ready)

    def on_ready(self, frame: Any) -> None:
        self.began = time.perf_counter()
        self.tags = set()
        self.pump()

    def pump(self) -> None:
        for exchange, key, body, properties in islice(self.messages, WINDOW - len(self.tags)):
            self.channel.basic_publish(exchange, key, body, properties, mandatory=True)
            self.sent += 1
            self.tags.add(self.sent)

    def on_returned(self, *returned: Any) -> None:
        raise AssertionError("a message was returned")

    def on_confirmed(self, frame: Any) -> None:
        method = frame.method
        assert isinstance(method, pika.spec.Basic.Ack)
        confirmed = {method.delivery_tag}
        if method.multiple:
            confirmed = {tag for tag in self.tags if tag <= method.delivery_tag}
        self.tags -= confirmed
        self.to_confirm -= len(confirmed)
        if not self.to_confirm:
            self.seconds = time.perf_counter() - self.began
            self.connection.close()
            self.connection.ioloop.stop()
        else:
            self.pump()


STAGES: dict[str, Callable[[int], float]] = {"raw": raw, "relay": relay}


def main() -> None:
    """Run the stage that the command line names."""
    name, count = sys.argv[1], int(sys.argv[2])
    seconds = STAGES[name](count)
    print(json.dumps({"messages": count, "seconds": seconds}))
    assert threading.active_count() == 1, threading.enumerate()


if __name__ == "__main__":
    main()
