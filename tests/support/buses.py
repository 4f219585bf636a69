"""Buses laid out by others: declared by hand on a broker, and joined by the recipes of the docs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pika
import pytest
from django.test import override_settings

from django_eventbus import handle_command, publish, send_command, subscribe, transports
from django_eventbus.checks import problems
from django_eventbus.conf import conf
from django_eventbus.consumer.consumer import Consumer
from django_eventbus.events.message import uuid7
from django_eventbus.models import InboxRecord, OutboxEvent
from django_eventbus.outbox.relay import Relay
from django_eventbus.subscriptions.queue_specs import queue_specs
from django_eventbus.subscriptions.subscription import registry
from tests.support.helpers import eventually

PAGE = Path(__file__).parent.parents[1] / "docs/how-to/join-an-existing-bus.md"
#: What a tier waits here, whatever its name says.
SOON = 100


def recipe(heading: str) -> dict[str, Any]:
    """Return the setting that the docs give for a bus."""
    found = re.search(rf"^### {heading}\n.*?```python\n(.*?)```", PAGE.read_text(), re.M | re.S)
    assert found, heading
    scope: dict[str, Any] = {}
    exec(found[1], scope)
    return scope["EVENTBUS"]


@dataclass
class Hands:
    """Somebody else's hands on the broker."""

    channel: Any
    exchanges: list[str] = field(default_factory=list)
    queues: list[str] = field(default_factory=list)

    def exchange(self, name: str, kind: str) -> None:
        self.channel.exchange_declare(name, kind, durable=True)
        self.exchanges.append(name)

    def queue(self, name: str, *bindings: tuple[str, str], **arguments: object) -> None:
        written = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        self.channel.queue_declare(name, durable=True, arguments=written)
        self.queues.append(name)
        for exchange, key in bindings:
            self.channel.queue_bind(name, exchange, key)

    def publish(self, exchange: str, event_type: str, payload: object = None) -> str:
        return self.send(exchange, event_type, json.dumps(payload or {}).encode())

    def send(self, exchange: str, event_type: str, body: bytes, **changes: Any) -> str:
        """Publish these bytes, with *changes* to the properties that are usual here."""
        usual = {"message_id": str(uuid7()), "type": event_type, "app_id": "somebody"}
        properties = pika.BasicProperties(**{**usual, "delivery_mode": 2, **changes})
        self.channel.basic_publish(exchange, event_type, body, properties)
        return str(properties.message_id)

    def empty(self) -> None:
        """Throw away what other tests have left in these queues."""
        # Twice: what left its tier behind the first round has come back to its queue.
        for queue in (*self.queues, *self.queues):
            self.channel.queue_purge(queue)

    def taken(self, queue: str) -> Iterator[tuple[Any, bytes]]:
        """Take everything out of *queue*."""
        while (message := self.channel.basic_get(queue, auto_ack=True))[0]:
            yield message[1], message[2]


def fanout_bus(hands: Hands) -> None:
    hands.exchange("wms.main-exchange", "fanout")
    for service in ("wms-stock", "wms-other"):
        retries, queue = f"wms.retry-exchange.{service}", f"wms.queue.{service}"
        hands.exchange(retries, "direct")
        hands.queue(
            queue,
            ("wms.main-exchange", ""),
            dead_letter_exchange=retries,
            dead_letter_routing_key="retry",
        )
        hands.queue(
            f"wms.retry-queue.{service}",
            (retries, "retry"),
            message_ttl=SOON,
            dead_letter_exchange="",
            dead_letter_routing_key=queue,
        )
        hands.queue(f"wms.dlq.{service}")


def ratatoskr(hands: Hands) -> None:
    hands.exchange("ratatoskr.events", "topic")
    for queue in ("my-service.events", "other-service.events"):
        back = {"dead_letter_exchange": "", "queue_type": "quorum"}
        hands.queue(
            queue,
            ("ratatoskr.events", "order.#"),
            dead_letter_routing_key=f"{queue}.retry",
            **back,
        )
        hands.queue(f"{queue}.retry", message_ttl=SOON, dead_letter_routing_key=queue, **back)
        hands.exchange(f"{queue}.dlq", "fanout")
        hands.queue(f"{queue}.dlq", (f"{queue}.dlq", ""), queue_type="quorum")


def freeflow(hands: Hands) -> None:
    for name, kind in (("", "topic"), (".retry", "direct"), (".dlx", "fanout")):
        hands.exchange(f"freeflow.events{name}", kind)
    hands.queue("freeflow.events.dlq", ("freeflow.events.dlx", ""))
    for service, pattern in (("user", "user.*"), ("audit", "#")):
        hands.queue(
            f"freeflow.{service}",
            ("freeflow.events", pattern),
            dead_letter_exchange="freeflow.events.dlx",
        )
        for delay in ("30s", "5m", "30m"):
            hands.queue(
                f"freeflow.{service}.retry.{delay}",
                ("freeflow.events.retry", f"{service}.{delay}"),
                message_ttl=SOON,
                dead_letter_exchange="freeflow.events",
                dead_letter_routing_key=f"{service}.retry",
            )


def events_and_commands(hands: Hands) -> None:
    hands.exchange("domain.events", "topic")
    hands.exchange("domain.commands", "topic")
    commands = ("commands.upload.#", "commands.file.reprocess.*")
    for name, exchange, keys in (
        ("upload.commands", "domain.commands", commands),
        ("validator", "domain.events", ["files.uploaded.*"]),
        ("audit", "domain.events", ["#"]),
    ):
        queue = f"q.{name}"
        hands.exchange(f"retry.{queue}", "direct")
        hands.exchange(f"dlq.{queue}", "direct")
        hands.queue(
            queue,
            *((exchange, key) for key in keys),
            dead_letter_exchange=f"retry.{queue}",
            dead_letter_routing_key="retry",
        )
        hands.queue(
            f"{queue}.retry",
            (f"retry.{queue}", "retry"),
            message_ttl=SOON,
            dead_letter_exchange="",
            dead_letter_routing_key=queue,
        )
        hands.queue(f"{queue}.dlq", (f"dlq.{queue}", "parking"))


def nano_service(hands: Hands) -> None:
    hands.exchange("easyweek.bus", "topic")
    hands.queue("easyweek.notification-service", ("easyweek.bus", "#"))
    queue = "easyweek.invoice-service"
    hands.exchange(queue, "topic")
    hands.queue(
        queue,
        ("easyweek.bus", "invoice.*"),
        ("easyweek.bus", "system.ping.1"),
        (queue, "#"),
        dead_letter_exchange=f"{queue}.failed",
    )
    hands.queue(f"{queue}.failed")
    hands.exchange(f"{queue}.retry", "direct")
    for delay in ("1s", "5s", "1m"):
        hands.queue(
            f"{queue}.retry.{delay}",
            (f"{queue}.retry", delay),
            message_ttl=SOON,
            dead_letter_exchange="",
            dead_letter_routing_key=queue,
        )


@dataclass(frozen=True)
class Layout:
    """A bus, its recipe, what is published on it, and who else listens."""

    lay_out: Callable[[Hands], None]
    heading: str
    event: str
    exchange: str
    bystander: str
    queue: str = ""
    #: How many of our retries the bystander gets to see.
    leaks: bool = False
    #: What a stranger sends.
    body: bytes = b"{}"
    #: What the event is as a command.
    command: str = ""

    def handle(self, handler: Any) -> None:
        """Subscribe *handler* to what is published."""
        if self.command:
            handle_command(self.command, queue=self.queue, name="handler")(handler)
        else:
            subscribe(self.event, queue=self.queue, name="handler")(handler)

    def publish(self, payload: object) -> str:
        """Publish as the service that joined; return the id."""
        if self.command:
            return str(send_command(self.command, payload))
        return str(publish(self.event, payload))


LAYOUTS = {
    "wms": Layout(
        fanout_bus,
        "A fanout exchange and a retry queue for each service",
        "stock.moved",
        "wms.main-exchange",
        "wms.queue.wms-other",
    ),
    "ratatoskr": Layout(
        ratatoskr,
        "A retry queue behind the default exchange",
        "order.placed",
        "ratatoskr.events",
        "other-service.events",
    ),
    "freeflow": Layout(
        freeflow,
        "Tiers that return through the topic exchange",
        "user.created",
        "freeflow.events",
        "freeflow.audit",
        leaks=True,
    ),
    "domain events": Layout(
        events_and_commands,
        "Events and commands, with fixed keys for retry and parking",
        "files.uploaded.v1",
        "domain.events",
        "q.audit",
        queue="validator",
    ),
    "domain commands": Layout(
        events_and_commands,
        "Events and commands, with fixed keys for retry and parking",
        "commands.upload.start",
        "domain.commands",
        "q.audit",
        queue="upload.commands",
        command="upload.start",
    ),
    "nano-service": Layout(
        nano_service,
        "A delayed exchange, replaced by tiers",
        "invoice.paid",
        "easyweek.bus",
        "easyweek.notification-service",
        body=b'{"meta":{},"payload":{},"status":{},"system":{}}',
    ),
}


class Member:
    """A service on the bus, as its settings are now."""

    def __init__(self) -> None:
        assert [each.msg for each in problems() if each.level >= 40] == []
        self.transport = transports.connect(conf.broker_url)
        self.transport.declare(queue_specs())
        self.publisher = self.transport.publisher()
        self.relay = Relay(self.publisher, "default")
        self.consumer = Consumer(self.publisher)
        self.subscriber = self.transport.subscriber(registry.queues(), prefetch=10)

    def work_until(self, condition: Callable[[], Any]) -> None:
        def worked() -> Any:
            self.relay.relay_once()
            while delivery := self.subscriber.receive(0.05):
                self.consumer.consume(delivery)
            return condition()

        eventually(worked, timeout=40, message=self._state)

    def _state(self) -> str:
        outbox = list(OutboxEvent.objects.values_list("state", "error", "exchange", "routing_key"))
        inbox = list(InboxRecord.objects.values_list("state", "attempt"))
        return f"outbox {outbox} inbox {inbox}"

    def close(self) -> None:
        self.subscriber.close()
        self.relay.close()


@contextmanager
def member(**settings: object) -> Iterator[Member]:
    with override_settings(EVENTBUS=settings):
        joined = Member()
        try:
            yield joined
        finally:
            joined.close()


@pytest.fixture
def hands(own_node) -> Iterator[Hands]:
    """Be somebody else on the broker of one's own."""
    with pika.BlockingConnection(pika.URLParameters(own_node.server.url)) as connection:
        yield Hands(connection.channel())
