"""Formats on a real broker: what strangers read and write, and what becomes of their bytes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from django_eventbus import Event, publish, subscribe
from django_eventbus.events.message import uuid7
from django_eventbus.models import DeadLetter, InboxRecord
from django_eventbus.outbox.relay import Relay
from django_eventbus.redrive.letters import redrive
from tests.support.helpers import eventually
from tests.transports.rabbitmq.shop import Shop

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.rabbitmq,
    pytest.mark.usefixtures("no_subscriptions"),
]

CLOUD = {"specversion": "1.0", "id": "7", "source": "/billing", "type": "invoice.paid"}
TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NANO = b'{"meta":[],"payload":{"do": 1.10},"status":[],  "system":{"is_debug": false}}'


class OrderPlaced(Event, type="order.placed", version=3):
    order_id: int
    total: Decimal


@pytest.fixture
def got():
    return []


@pytest.fixture
def shop(amqp, settings, got):
    """A subscription to everything, which fails in its first life."""

    @subscribe("#", queue="acts", name="all", retry=["50ms"])
    def handler(event):
        got.append(event)
        if not event.meta.round:
            raise ValueError("told to fail")

    return Shop(amqp, settings)


def work_until(shop, condition):
    def worked():
        shop.work()
        return condition()

    return eventually(worked, timeout=30)


@pytest.mark.parametrize("name", ["native", "envelope", "cloudevents"])
def test_a_typed_event_goes_over_the_broker_in_every_format(amqp, settings, got, name):
    settings.EVENTBUS = {**settings.EVENTBUS, "FORMAT": name}
    subscribe(OrderPlaced, queue="acts", name="typed")(got.append)
    shop = Shop(amqp, settings)
    event = OrderPlaced(order_id=7, total=Decimal("1.50"))

    event_id = publish(event, key=7, headers={"team": "red"}, debug=True)
    work_until(shop, lambda: got)

    assert got == [event]
    meta = got[0].meta
    assert (meta.id, meta.version, meta.key, meta.is_debug) == (str(event_id), 3, "7", True)
    assert meta.headers["team"] == "red"


def published(shop, settings, name):
    """Return what a stranger gets of an event of ours."""
    settings.EVENTBUS = {**settings.EVENTBUS, "FORMAT": name}
    event_id = publish("order.placed", {"a": 1}, headers={"team": "red"}, debug=True)
    relay = Relay(shop.transport.publisher(), "default")
    relay.relay_once()
    relay.close()
    with shop.amqp.channel() as channel:
        _, properties, body = channel.basic_get(shop.queue, auto_ack=True)
    assert properties.message_id == str(event_id)
    return properties, json.loads(body)


def test_nano_service_finds_everything_that_its_validator_asks_for(shop, settings):
    properties, body = published(shop, settings, "envelope")

    assert (properties.type, properties.app_id) == ("order.placed", "shop-tests")
    assert body == {
        "meta": {"team": "red"},
        "payload": {"a": 1},
        "status": {},
        "system": {"is_debug": True},
    }


def test_a_reader_of_cloudevents_finds_the_required_attributes_in_headers(shop, settings):
    properties, body = published(shop, settings, "cloudevents")

    assert (body, properties.content_type) == ({"a": 1}, "application/json")
    headers = properties.headers
    assert headers["cloudEvents_specversion"] == "1.0"
    assert headers["cloudEvents_id"] == properties.message_id
    assert (headers["cloudEvents_source"], headers["cloudEvents_type"]) == (
        "shop-tests",
        "order.placed",
    )
    assert datetime.fromisoformat(headers["cloudEvents_time"]).tzinfo


FOREIGN = {
    "envelope": {"body": NANO, "message_id": "n-1", "app_id": "nano", "type": "order.placed"},
    "structured": {
        "body": json.dumps({**CLOUD, "data": {"do": 1.1}}, indent=3).encode(),
        "content_type": "application/cloudevents+json",
        "no_id": True,
        "type": None,
    },
    "binary": {
        "body": b' {"do" : 1.10} ',
        "headers": {
            "cloudEvents_time": TIME,
            **{f"cloudEvents_{name}": each for name, each in CLOUD.items()},
        },
        "no_id": True,
        "type": None,
    },
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("park_to", ["database", "broker"])
def test_a_foreign_message_is_retried_parked_and_redriven(shop, got, name, park_to):
    shop.configure(PARK_TO=park_to)
    foreign = FOREIGN[name]
    shop.put(**foreign)

    letter = work_until(shop, lambda: DeadLetter.objects.first())
    if park_to == "database" or name != "envelope":
        assert bytes(letter.body) == foreign["body"]
    redrive([letter.pk], by="me", using="default")
    work_until(shop, lambda: DeadLetter.objects.get().state == DeadLetter.State.HEALED)

    own = "n-1" if name == "envelope" else "/billing#7"
    assert [(each.meta.round, each.meta.attempt) for each in got] == [(0, 1), (0, 2), (1, 1)]
    assert {each.meta.id for each in got} == {own}
    assert all(each.payload == {"do": 1.1} for each in got)
    assert InboxRecord.objects.get().message_id == own
    if name == "binary":
        assert got[0].meta.published_at == TIME


def test_a_cloudevent_with_attributes_beyond_amqp_s_limits_is_retried_too(shop, got):
    long = "\u00e4\x00" * 200
    odd = {"id": str(uuid7()), "source": long, "correlationid": long, "partitionkey": long}
    body = json.dumps({**CLOUD, **odd, "time": "0001-01-01T00:00:00+14:00"}).encode()
    shop.put(body=body, content_type="application/cloudevents+json", no_id=True, type=None)

    letter = work_until(shop, lambda: DeadLetter.objects.first())

    assert bytes(letter.body) == body
    assert [(each.meta.id, each.meta.attempt) for each in got] == [(odd["id"], 1), (odd["id"], 2)]


def test_an_envelope_in_the_dlq_says_what_its_consumer_said(shop):
    shop.configure(PARK_TO="broker", COLLECT_DLQ=False)
    shop.put(**FOREIGN["envelope"])

    work_until(shop, lambda: shop.amqp.count(shop.dlq))
    ((_, properties, body),) = shop.dead()

    assert json.loads(body)["system"]["consumer_error"] == "ValueError: told to fail"
    assert b'{"do": 1.10}' in body
    assert properties.headers["x-final-error"] == "ValueError: told to fail"
    assert properties.headers["x-retry-count"] == 1


def test_a_bad_envelope_is_parked_with_every_reason_and_its_bytes(shop, got):
    body = b'{"meta": 1, "payload": {}, "status": {}}'
    shop.put(body=body, no_id=True)

    letter = work_until(shop, lambda: DeadLetter.objects.first())

    assert letter.error == (
        "the message has no message_id; the message has no app_id; "
        "meta is a number, not an object; system is missing"
    )
    assert (letter.kind, bytes(letter.body), got) == ("undecodable", body, [])


def test_a_broker_redrive_knows_a_cloudevent_by_the_id_that_the_inbox_knows(shop, got):
    shop.configure(PARK_TO="broker", COLLECT_DLQ=False)
    shop.put(**FOREIGN["structured"])
    work_until(shop, lambda: shop.amqp.count(shop.dlq))

    for _ in range(2):
        redriven(shop)
        work_until(shop, lambda: InboxRecord.objects.get().state == "handled")

    assert [each.meta.round for each in got] == [0, 0, 1]


def redriven(shop):
    from threading import Event as Flag

    from django_eventbus.redrive.from_broker import BrokerRedrive, find_dead_letter_queue

    dlq = find_dead_letter_queue(shop.transport, shop.queue)
    BrokerRedrive(shop.transport, dlq, by="me", stop=Flag()).run(10)
