"""Buses laid out by others, declared by hand here, and joined by the recipes of the docs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import pika
import pytest
from django.core.management import call_command
from django.test import override_settings

from django_eventbus import publish, signals, subscribe, transports
from django_eventbus.checks import problems
from django_eventbus.conf import conf
from django_eventbus.consumer import Consumer
from django_eventbus.messages import uuid7
from django_eventbus.models import DeadLetter, InboxRecord, OutboxEvent
from django_eventbus.relay import Relay
from django_eventbus.subscriptions import registry
from django_eventbus.workers import queue_specs
from tests.amqp import Amqp
from tests.helpers import eventually
from tests.own_broker import ONE_WORKER
from tests.shop.models import Effect

pytestmark = [
    pytest.mark.rabbitmq,
    pytest.mark.sqlite,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("no_subscriptions"),
    ONE_WORKER,
]

PAGE = Path(__file__).parents[2] / "docs/how-to/join-an-existing-bus.md"
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

    def exchange(self, name: str, kind: str) -> None:
        self.channel.exchange_declare(name, kind, durable=True)
        self.exchanges.append(name)

    def queue(self, name: str, *bindings: tuple[str, str], **arguments: object) -> None:
        written = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        self.channel.queue_declare(name, durable=True, arguments=written)
        for exchange, key in bindings:
            self.channel.queue_bind(name, exchange, key)

    def publish(self, exchange: str, event_type: str, payload: object = None) -> str:
        message_id = str(uuid7())
        properties = pika.BasicProperties(
            message_id=message_id, type=event_type, delivery_mode=2, app_id="somebody"
        )
        body = json.dumps(payload or {}).encode()
        self.channel.basic_publish(exchange, event_type, body, properties)
        return message_id


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
    for name, exchange, key in (
        ("upload.commands", "domain.commands", "commands.upload.#"),
        ("validator", "domain.events", "files.uploaded.*"),
        ("audit", "domain.events", "#"),
    ):
        queue = f"q.{name}"
        hands.exchange(f"retry.{queue}", "direct")
        hands.exchange(f"dlq.{queue}", "direct")
        hands.queue(
            queue,
            (exchange, key),
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
    ),
    "nano-service": Layout(
        nano_service,
        "A delayed exchange, replaced by tiers",
        "invoice.paid",
        "easyweek.bus",
        "easyweek.notification-service",
    ),
}

#: What the broker lets us write to: exchanges, and so no binding can be made.
WRITABLE = (
    r"amq\.default|wms\.(main|retry)-exchange.*|ratatoskr\.events|freeflow\.events(\.retry)?"
    r"|domain\.(events|commands)|retry\.q\..*|easyweek\.bus|easyweek\.invoice-service\.retry"
)
GUEST = "guest-of-the-bus"


@pytest.fixture(scope="session")
def guest_url(own_node) -> str:
    """Be known to the broker as somebody who may declare, delete and bind nothing."""
    control = own_node.server.control
    control("add_user", GUEST, "guest")
    control("set_permissions", GUEST, "^$", f"^({WRITABLE})$", ".*")
    return own_node.server.url.replace("guest:guest@", f"{GUEST}:guest@")


@pytest.fixture
def hands(own_node) -> Iterator[Hands]:
    with pika.BlockingConnection(pika.URLParameters(own_node.server.url)) as connection:
        yield Hands(connection.channel())


def everything_on(node, path: Path) -> dict[str, list[str]]:
    """Return every exchange, queue and binding, as the broker exports them."""
    node.server.control("export_definitions", str(path))
    exported = json.loads(path.read_text())
    return {
        key: sorted(json.dumps(each, sort_keys=True) for each in exported[key])
        for key in ("exchanges", "queues", "bindings")
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


def handler(event: Any) -> None:
    """Leave an effect; fail at first, or always, if told so."""
    Effect.objects.create(event_id=event.meta.id, subscription="handler")
    told = event.payload.get("do")
    if told == "fail" or (told == "fail once" and event.meta.attempt == 1):
        raise ValueError("told to fail")


def effects() -> list[str]:
    return list(Effect.objects.values_list("event_id", flat=True))


def drained(channel: Any, queue: str) -> list[tuple[str, int]]:
    """Return the ids of what a bystander got, each with its number of retries."""
    found = []
    while True:
        method, properties, _ = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return found
        found.append((properties.message_id, (properties.headers or {}).get("x-retry-count", 0)))


@pytest.fixture
def skipped() -> Iterator[list[str]]:
    reasons: list[str] = []

    def note(sender: object, reason: str, **kwargs: object) -> None:
        reasons.append(reason)

    signals.event_skipped.connect(note)
    yield reasons
    signals.event_skipped.disconnect(note)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_bus_laid_out_by_others_is_joined_without_a_right_to_touch_it(
    name, guest_url, hands, skipped
):
    layout = LAYOUTS[name]
    layout.lay_out(hands)
    drained(hands.channel, layout.bystander)
    subscribe(layout.event, queue=layout.queue, name="handler")(handler)
    settings = {**recipe(layout.heading), "BROKER_URL": guest_url, "POLL_INTERVAL": "50ms"}

    with member(**settings) as joined:
        ours = str(publish(layout.event, {"do": "fail once"}))
        parked = str(publish(layout.event, {"do": "fail"}))
        theirs = hands.publish(layout.exchange, layout.event)
        joined.work_until(lambda: DeadLetter.objects.exists() and len(effects()) == 2)
        tries = settings.get("TRIES") or len(settings["RETRY_DELAYS"]) + 1

    assert sorted(effects()) == sorted([ours, theirs])
    letter = DeadLetter.objects.get()
    assert (letter.message_id, letter.kind, letter.attempts) == (parked, "failed", tries)
    seen = drained(hands.channel, layout.bystander)
    if layout.exchange != "domain.commands":
        assert {message_id for message_id, _ in seen} == {ours, parked, theirs}
    assert any(retries for _, retries in seen) is layout.leaks
    assert skipped == []


@pytest.mark.parametrize("mode", ["check", "assume"])
def test_joining_adds_changes_and_removes_nothing_even_with_the_right_to(
    mode, own_node, hands, tmp_path
):
    for layout in LAYOUTS.values():
        layout.lay_out(hands)
    before = everything_on(own_node, tmp_path / "before.json")

    for layout in LAYOUTS.values():
        subscribe(layout.event, queue=layout.queue, name="handler")(handler)
        its_own = {"BROKER_URL": own_node.server.url, "TOPOLOGY": mode}
        with member(**recipe(layout.heading) | its_own) as joined:
            event = str(publish(layout.event, {"do": "fail once"}))
            joined.work_until(lambda event=event: event in effects())
            call_command("eventbus_topology", "--plan", stdout=StringIO())
        registry.remove(*registry)

    assert everything_on(own_node, tmp_path / "after.json") == before


def test_a_copy_that_comes_back_to_everyone_is_for_one_of_them(guest_url, hands, skipped):
    freeflow(hands)
    hands.channel.queue_purge("freeflow.user")
    hands.channel.queue_purge("freeflow.audit")
    settings = {**recipe(LAYOUTS["freeflow"].heading), "BROKER_URL": guest_url}
    subscribe("user.*", name="handler")(handler)

    with member(**settings) as user:
        event = str(publish("user.created", {"do": "fail once"}))
        user.work_until(lambda: effects() == [event])
    # The other service has the event itself once, and a copy that is not its own.
    with member(**settings | {"SERVICE": "audit"}) as audit:
        InboxRecord.objects.all().delete()
        audit.work_until(lambda: skipped and effects() == [event] * 2)

    assert skipped == ["it is for freeflow.user"]
    assert not DeadLetter.objects.exists()


def test_a_thousand_foreign_events_on_a_fanout_bus_make_no_dead_letter(guest_url, hands, skipped):
    fanout_bus(hands)
    hands.channel.queue_purge("wms.queue.wms-stock")
    settings = {**recipe(LAYOUTS["wms"].heading), "BROKER_URL": guest_url}
    subscribe("stock.moved", name="handler")(handler)

    for number in range(1000):
        hands.publish("wms.main-exchange", f"foreign.kind{number % 7}")
    ours = hands.publish("wms.main-exchange", "stock.moved")
    with member(**settings) as joined:
        joined.work_until(lambda: effects() == [ours] and len(skipped) == 1000)

    assert not DeadLetter.objects.exists()
    assert InboxRecord.objects.count() == 1
    assert hands.channel.queue_declare("wms.dlq.wms-stock", passive=True).method.message_count == 0
    hands.channel.queue_purge("wms.queue.wms-other")


def test_two_namespaces_share_a_virtual_host_without_touching_each_other(rabbitmq_url, settings):
    one, two = Amqp(rabbitmq_url), Amqp(rabbitmq_url)
    subscribe("act.*", queue="acts", name="handler", retry=["50ms"])(handler)
    plain = settings.EVENTBUS

    try:
        with member(**plain | two.settings):
            with member(**plain | one.settings) as joined:
                event = str(publish("act.now", {"do": "fail once"}))
                joined.work_until(lambda: effects() == [event])
            assert OutboxEvent.objects.get().exchange == f"{one.namespace}.events"
            assert two.count(two.queue()) == two.count(f"{two.queue()}.retry.50ms") == 0
            one.delete_everything()
            assert two.count(two.queue()) == 0
    finally:
        one.delete_everything()
        two.delete_everything()
