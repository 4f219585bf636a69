"""The broker's DLQ: what dies there becomes a dead letter, and what is parked goes there by choice."""

from __future__ import annotations

import pytest

from django_eventbus.events.message import uuid7
from django_eventbus.models import Attempt, DeadLetter, InboxRecord
from django_eventbus.outbox.relay import Relay
from django_eventbus.redrive.letters import redrive
from tests.shop.models import Effect
from tests.support.helpers import eventually
from tests.transports.rabbitmq.shop import Shop

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgres,
    pytest.mark.rabbitmq,
]

KILLED = -9


@pytest.fixture
def worker(manage, shop):
    def start(*arguments, kill_at=""):
        options = {"env": shop.amqp.environment, "kill_at": kill_at, "is_measured": not kill_at}
        return manage("consume_events", "--with-relay", *arguments, **options)

    return start


def letters():
    return sorted(DeadLetter.objects.values_list("subscription", "state", "kind"))


def die_by_expiry(shop):
    message_id = shop.put(expiration="1")
    eventually(lambda: shop.amqp.count(shop.dlq))
    return message_id


def die_on_the_side(shop, **arguments):
    """Declare a queue that gives up sooner than ours, into our DLQ; return its name."""
    side = f"{shop.queue}.side"
    with shop.amqp.channel() as channel:
        arguments = {"x-queue-type": "quorum", "x-dead-letter-exchange": shop.dlq, **arguments}
        channel.queue_declare(side, durable=True, arguments=arguments)
    return side


def die_by_length(shop):
    side = die_on_the_side(shop, **{"x-max-length": 1})
    message_id = shop.put(to=side)
    shop.put(to=side)
    eventually(lambda: shop.amqp.count(shop.dlq))
    return message_id


def die_by_deliveries(shop):
    side = die_on_the_side(shop, **{"x-delivery-limit": 1})
    message_id = shop.put(to=side)

    def is_dead():
        with shop.amqp.channel() as channel:
            method, *_ = channel.basic_get(side)
            if method:
                # Not a nack, which RabbitMQ 4.3 does not count.
                channel.basic_reject(method.delivery_tag, requeue=True)
        return shop.amqp.count(shop.dlq)

    eventually(is_dead)
    return message_id


DEATHS = {
    "rejected": Shop.bury,
    "expired": die_by_expiry,
    "maxlen": die_by_length,
    "delivery_limit": die_by_deliveries,
    "foreign": lambda shop: shop.put(to=shop.dlq),
}


@pytest.mark.parametrize("kind", DEATHS)
def test_what_dies_on_the_broker_becomes_a_dead_letter_that_a_re_drive_heals(shop, kind):
    message_id = DEATHS[kind](shop)

    shop.work()

    assert letters() == [("shop.act", "open", kind), ("shop.witness", "open", kind)]
    letter = DeadLetter.objects.first()
    assert (letter.message_id, letter.queue) == (message_id, shop.queue)
    assert bytes(letter.body) == b'{"do": "ok"}'
    assert (letter.headers.get("x-first-death-reason") or "foreign") == kind
    assert shop.amqp.count(shop.dlq) == 0
    assert not Effect.objects.exists()

    assert redrive(DeadLetter.objects.values_list("pk", flat=True), by="me", using="default") == 2
    shop.work()

    assert shop.effects == [(message_id, "shop.act"), (message_id, "shop.witness")]
    assert {state for _, state, _ in letters()} == {"healed"}


def test_a_retry_that_dies_is_told_by_its_queue_and_not_by_its_tier(shop):
    headers = {"eventbus-subscription": "shop.act", "x-retry-count": 1}
    shop.put(to="50ms", exchange=f"{shop.queue}.retry", headers=headers)
    shop.reject()

    shop.work()

    letter = DeadLetter.objects.get()
    assert letter.headers["x-first-death-reason"] == "expired"
    assert (letter.kind, letter.subscription, letter.attempts) == ("rejected", "shop.act", 2)


def test_a_copy_that_dies_opens_no_dead_letter_beside_the_effect(shop):
    message_id = shop.put()
    shop.work()
    shop.bury(message_id=message_id)

    shop.work()

    assert len(shop.effects) == 2
    assert not DeadLetter.objects.exists()
    assert shop.amqp.count(shop.dlq) == 0


def test_only_the_subscription_that_had_not_settled_it_gets_a_dead_letter(shop):
    message_id = str(uuid7())
    shop.put(message_id=message_id, headers={"eventbus-subscription": "shop.witness"})
    shop.work()
    shop.bury(message_id=message_id)

    shop.work()

    assert letters() == [("shop.act", "open", "rejected")]
    assert shop.effects == [(message_id, "shop.witness")]


def test_another_copy_of_what_died_has_no_effect_beside_the_dead_letter(shop):
    message_id = shop.bury()
    shop.work()
    shop.put(message_id=message_id)

    shop.work()

    assert not shop.effects
    assert [state for _, state, _ in letters()] == ["open", "open"]


def test_a_retry_that_was_recorded_goes_on_when_its_message_dies(shop):
    message_id = str(uuid7())
    InboxRecord.objects.create(
        subscription="shop.act", message_id=message_id, state="retrying", attempt=1, delay=0.05
    )
    shop.bury(message_id=message_id, headers={"eventbus-subscription": "shop.act"})

    eventually(lambda: shop.work() or shop.effects)

    assert shop.effects == [(message_id, "shop.act")]
    assert not DeadLetter.objects.exists()


def test_a_re_drive_that_dies_opens_its_dead_letter_again(shop):
    shop.bury(headers={"eventbus-subscription": "shop.act"})
    shop.work()
    letter = DeadLetter.objects.get()
    redrive([letter.pk], by="me", using="default")
    relay = Relay(shop.transport.publisher(), "default")
    relay.relay_once()
    relay.close()
    shop.reject()

    shop.work()

    letter.refresh_from_db()
    assert (letter.state, letter.round, letter.kind) == ("open", 1, "rejected")


@pytest.mark.parametrize(
    ("body", "options"),
    [
        (b"\xff not JSON", {}),
        (b"{}", {"type": "nobody.wants"}),
        (b"{}", {"headers": {"eventbus-subscription": "gone"}}),
    ],
)
def test_what_no_subscription_can_be_given_is_collected_with_its_exact_bytes(shop, body, options):
    shop.bury(body=body, **options)

    shop.work()

    letter = DeadLetter.objects.get()
    assert letter.subscription == options.get("headers", {}).get("eventbus-subscription", "")
    assert (bytes(letter.body), letter.kind) == (body, "rejected")
    assert not InboxRecord.objects.exists()


@pytest.mark.parametrize("settings_", [{"COLLECT_DLQ": False}, {"TOPOLOGY": "check"}])
def test_a_dlq_that_is_not_ours_to_empty_keeps_its_dead(shop, settings_):
    shop.configure(**settings_)
    shop.bury()

    shop.work()

    assert shop.amqp.count(shop.dlq) == 1
    assert not DeadLetter.objects.exists()


def test_a_kill_between_the_dead_letter_and_the_ack_leaves_one_dead_letter(shop, worker):
    shop.bury(headers={"eventbus-subscription": "shop.act"})

    assert worker(kill_at="eventbus.collector.recorded").wait() == KILLED
    assert len(letters()) == 1
    survivor = worker("--burst")

    assert survivor.wait() == 0, survivor.output
    assert letters() == [("shop.act", "open", "rejected")]
    assert shop.amqp.count(shop.dlq) == 0


# PARK_TO = "broker"


def test_parked_to_the_broker_it_carries_its_end_and_nothing_that_a_broker_acts_on(shop):
    shop.configure(PARK_TO="broker", COLLECT_DLQ=False)
    elsewhere = shop.amqp.queue("counts")
    headers = {"eventbus-subscription": "shop.act", "x-retry-count": 2, "CC": [elsewhere]}
    message_id = shop.put("fail", headers=headers, expiration="60000", user_id="guest")

    shop.work()

    ((_, properties, body),) = shop.dead()
    assert (properties.message_id, body) == (message_id, b'{"do": "fail"}')
    assert (properties.expiration, properties.user_id, properties.delivery_mode) == (None, None, 2)
    properties.headers.pop("x-delivery-count", None)
    assert properties.headers == {
        "eventbus-subscription": "shop.act",
        "x-retry-count": 2,
        "x-original-exchange": "",
        "x-original-routing-key": shop.queue,
        "x-original-queue": shop.queue,
        "x-final-error": "ValueError: told to fail",
        "x-final-kind": "failed",
        "x-final-retry-count": 2,
    }
    assert not DeadLetter.objects.exists()
    assert InboxRecord.objects.get().state == "parked"
    assert shop.amqp.count(elsewhere) == 1


def test_parked_to_the_broker_and_collected_it_is_a_dead_letter_with_its_history(shop):
    shop.configure(PARK_TO="broker")
    shop.put("give up", headers={"eventbus-subscription": "shop.act"})

    shop.work()

    letter = DeadLetter.objects.get()
    assert (letter.kind, letter.error_type, letter.error) == (
        "given_up",
        "GiveUp",
        "told to give up",
    )
    assert Attempt.objects.get().traceback
    letter.body = b'{"do": "ok"}'
    letter.save()
    redrive([letter.pk], by="me", using="default")
    shop.work()
    assert letters() == [("shop.act", "healed", "given_up")]


def test_a_re_drive_that_fails_again_carries_its_new_end_only(shop):
    shop.configure(PARK_TO="broker")
    shop.put("give up", headers={"eventbus-subscription": "shop.act"})
    shop.work()
    letter = DeadLetter.objects.get()
    letter.body = b'{"do": "fail"}'
    letter.save()

    redrive([letter.pk], by="me", using="default")
    shop.work()

    letter.refresh_from_db()
    assert (letter.state, letter.round, letter.kind) == ("open", 1, "failed")
    assert letter.error == "told to fail"


def test_what_cannot_be_read_is_parked_to_the_broker_too(shop):
    shop.configure(PARK_TO="broker", COLLECT_DLQ=False)
    shop.put(body=b"\xff")

    shop.work()

    ((_, properties, body),) = shop.dead()
    assert (properties.headers["x-final-kind"], body) == ("undecodable", b"\xff")
    assert not DeadLetter.objects.exists()


def test_what_the_broker_cannot_take_with_its_end_is_parked_in_the_database(shop):
    shop.configure(PARK_TO="broker")
    headers = {"eventbus-subscription": "shop.act", "big": "x" * (131072 - 300)}
    shop.put("give up", headers=headers)

    shop.work()

    assert letters() == [("shop.act", "open", "given_up")]


@pytest.mark.parametrize("collects", [True, False])
def test_a_kill_after_parking_to_the_broker_leaves_one_dead_letter(shop, worker, collects):
    shop.configure(PARK_TO="broker", COLLECT_DLQ=collects)
    shop.put("give up", headers={"eventbus-subscription": "shop.act"})

    assert worker(kill_at="eventbus.parking.published").wait() == KILLED
    survivor = worker("--burst")
    assert survivor.wait() == 0, survivor.output

    if not collects:
        assert shop.amqp.count(shop.dlq) == 2
        shop.configure(COLLECT_DLQ=True)
    shop.work()
    assert letters() == [("shop.act", "open", "given_up")]
    assert shop.amqp.count(shop.dlq) == 0
