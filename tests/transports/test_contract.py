"""What every transport promises the relay and the consumer. One suite for all of them."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from django.db import connections

from django_eventbus import transports
from django_eventbus.events.message import Message, uuid7
from django_eventbus.exceptions import BadSetting
from django_eventbus.subscriptions.queue_specs import QueueSpec
from django_eventbus.transports.contract import (
    Confirmed,
    Outgoing,
    Rejected,
    ToExchange,
    ToQueue,
    ToReply,
    ToTier,
    Unroutable,
)
from tests.support.helpers import eventually

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]


class Broker:
    """A transport under test, with queues of its own and short leases."""

    def __init__(self, url):
        self.transport = transports.connect(url)
        self.prefix = f"contract-{uuid7()}"
        self.exchange = f"{self.prefix}.events"
        self.publisher = self.transport.publisher()
        self.subscribers = []
        self.specs = []

    def queue(self, name, *patterns, delays=(0.2,), **options):
        full = f"{self.prefix}.{name}"
        spec = QueueSpec(
            name=full, exchange=self.exchange, patterns=patterns, delays=delays, **options
        )
        self.specs.append(spec)
        self.transport.declare([spec])
        return full

    def publish(self, routing_key, **changes):
        address = ToExchange(exchange=self.exchange, routing_key=routing_key)
        return self.send(address, type=routing_key, routing_key=routing_key, **changes)

    def send(self, address, **changes):
        message = Message(**{"id": str(uuid7()), "type": "a.b", "body": b"{}", **changes})
        return self.publisher.publish([Outgoing(address=address, message=message)])[0]

    def subscriber(self, *queues):
        subscriber = self.transport.subscriber(queues, prefetch=1)
        self.subscribers.append(subscriber)
        return subscriber

    def close(self):
        for subscriber in self.subscribers:
            subscriber.close()
        self.publisher.close()
        self.transport.remove(self.specs)


RABBITMQ = pytest.mark.rabbitmq


@pytest.fixture(
    params=[
        "database",
        pytest.param("rabbitmq", marks=RABBITMQ),
        pytest.param("rabbitmq with classic queues", marks=RABBITMQ),
    ]
)
def broker(request, settings, transactional_db):
    settings.EVENTBUS = {
        **settings.EVENTBUS,
        "BROKER_OPTIONS": {"LEASE": "600ms"},
        "POLL_INTERVAL": "20ms",
    }
    if "classic" in request.param:
        settings.EVENTBUS["QUEUE_TYPE"] = "classic"
    is_database = request.param == "database"
    broker = Broker("database://" if is_database else request.getfixturevalue("rabbitmq_url"))
    yield broker
    broker.close()


def test_an_event_reaches_every_queue_whose_pattern_matches(broker):
    one, two = broker.queue("one", "order.*"), broker.queue("two", "#")
    other = broker.queue("other", "invoice.#")

    assert broker.publish("order.placed") == Confirmed()

    assert broker.subscriber(one).receive(2).message.type == "order.placed"
    assert broker.subscriber(two).receive(2).message.type == "order.placed"
    assert broker.subscriber(other).receive(0) is None


def test_a_queue_with_two_matching_patterns_gets_one_copy(broker):
    queue = broker.queue("one", "order.*", "*.placed")

    broker.publish("order.placed")

    subscriber = broker.subscriber(queue)
    assert subscriber.receive(2)
    assert subscriber.receive(0) is None


def test_an_event_that_no_queue_wants_is_unroutable(broker):
    broker.queue("one", "order.*")

    assert broker.publish("invoice.sent") == Unroutable()


def test_a_message_comes_out_as_it_went_in(broker):
    queue = broker.queue("one", "order.*")
    sent = Message(
        id="an id of a stranger",
        type="order.placed",
        body=b'\x00\xff not even text {"',
        content_type="application/octet-stream",
        source="elsewhere",
        correlation_id="c",
        headers={"tenant": "ä", "count": 3, "yes": True},
        exchange=broker.exchange,
        routing_key="order.placed",
    )

    address = ToExchange(exchange=broker.exchange, routing_key="order.placed")
    broker.publisher.publish([Outgoing(address=address, message=sent)])

    assert broker.subscriber(queue).receive(2).message == sent


def test_the_levels_of_a_queue_and_its_tiers_are_told_without_taking_anything(broker):
    queue = broker.queue("one", "order.*", delays=(60,))
    for _ in range(3):
        broker.publish("order.placed")
    broker.send(ToTier(queue=queue, delay=60))

    def levels():
        (level,) = broker.transport.levels(broker.specs)
        return level.messages, sum(level.tiers.values())

    eventually(lambda: levels() == (3, 1))
    assert broker.subscriber(queue).receive(2)


def test_receipts_come_in_the_order_of_the_batch(broker):
    broker.queue("one", "order.*")
    keys = ["order.a", "nobody.wants", "order.b"]

    batch = [
        Outgoing(
            address=ToExchange(exchange=broker.exchange, routing_key=key),
            message=Message(id=str(uuid7()), type=key, body=b"{}"),
        )
        for key in keys
    ]

    assert list(broker.publisher.publish(batch)) == [Confirmed(), Unroutable(), Confirmed()]


@pytest.fixture
def box(broker):
    box = broker.transport.reply_box()
    yield box
    box.close()


def test_a_question_reaches_every_queue_and_each_answer_the_asker(broker, box):
    queues = [broker.queue(name, "order.*") for name in ("one", "two")]
    address = ToExchange(exchange=broker.exchange, routing_key="order.asked")
    question = Message(id="1", type="order.asked", body=b"{}", routing_key="order.asked")

    assert box.ask(address, question) == Confirmed()
    for queue in queues:
        delivery = broker.subscriber(queue).receive(2)
        answer = ToReply(reply_to=delivery.message.reply_to)
        broker.send(answer, correlation_id="1", body=queue.encode())
        delivery.ack()

    answers = [box.receive(2), box.receive(2)]
    assert sorted(each.body.decode() for each in answers) == sorted(queues)
    assert {each.correlation_id for each in answers} == {"1"}
    assert box.receive(0.2) is None


def test_a_question_that_no_queue_takes_is_unroutable(broker, box):
    broker.queue("one", "order.*")
    address = ToExchange(exchange=broker.exchange, routing_key="nobody.asks")

    assert box.ask(address, Message(id="1", type="nobody.asks", body=b"{}")) == Unroutable()


def test_an_answer_to_an_asker_that_has_left_goes_nowhere(broker):
    queue = broker.queue("one", "order.*")
    box = broker.transport.reply_box()
    address = ToExchange(exchange=broker.exchange, routing_key="order.asked")
    box.ask(address, Message(id="1", type="order.asked", body=b"{}"))
    delivery = broker.subscriber(queue).receive(2)

    box.close()

    # RabbitMQ 4.3 confirms what it drops there.
    answer = broker.send(ToReply(reply_to=delivery.message.reply_to))
    assert isinstance(answer, Unroutable | Confirmed)
    assert broker.publish("order.placed") == Confirmed()


def test_nobody_can_have_an_answer_sent_to_a_queue(broker):
    queue = broker.queue("one", "order.*")

    assert isinstance(broker.send(ToReply(reply_to=queue)), Unroutable | Rejected)

    assert broker.subscriber(queue).receive(0.2) is None


def test_what_is_acked_does_not_come_again(broker):
    queue = broker.queue("one", "order.*")
    broker.publish("order.placed")
    subscriber = broker.subscriber(queue)

    subscriber.receive(2).ack()

    eventually(subscriber.is_drained)
    assert subscriber.receive(0.8) is None


def test_what_is_released_comes_again_and_says_so(broker):
    queue = broker.queue("one", "order.*")
    broker.publish("order.placed")
    subscriber = broker.subscriber(queue)
    first = subscriber.receive(2)

    first.release()
    second = subscriber.receive(2)

    assert not first.is_redelivered
    assert second.is_redelivered
    assert (second.message.id, second.message.body) == (first.message.id, first.message.body)


def test_what_a_closed_subscriber_did_not_settle_comes_again(broker):
    queue = broker.queue("one", "order.*")
    broker.publish("order.placed")
    first = broker.transport.subscriber([queue], prefetch=1)
    first.receive(2)

    first.close()

    assert broker.subscriber(queue).receive(2).is_redelivered


def test_a_tier_returns_to_its_own_queue_only_and_not_early(broker):
    one, two = broker.queue("one", "#"), broker.queue("two", "#")

    assert broker.send(ToTier(queue=one, delay=0.2)) == Confirmed()

    subscriber = broker.subscriber(one)
    assert subscriber.receive(0) is None
    assert subscriber.receive(5)
    assert broker.subscriber(two).receive(0) is None


def test_an_addressed_message_reaches_its_queue_only(broker):
    one, two = broker.queue("one", "#"), broker.queue("two", "#")

    broker.send(ToQueue(queue=one))

    assert broker.subscriber(one).receive(2)
    assert broker.subscriber(two).receive(0) is None


def test_a_message_stays_ours_for_as_long_as_its_handler_works(broker):
    queue = broker.queue("one", "order.*")
    broker.publish("order.placed")
    slow, other = broker.subscriber(queue), broker.subscriber(queue)
    delivery = slow.receive(2)

    assert other.receive(1.5) is None

    delivery.ack()
    eventually(slow.is_drained)


def test_two_subscribers_never_hold_the_same_message(broker):
    queue = broker.queue("one", "order.*")
    for _ in range(20):
        broker.publish("order.placed")
    seen, threads = [], []

    def take(subscriber):
        while delivery := subscriber.receive(0.3):
            seen.append(delivery.message.id)
            delivery.ack()
        connections.close_all()

    for _ in range(2):
        threads.append(threading.Thread(target=take, args=[broker.subscriber(queue)]))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert len(seen) == len(set(seen)) == 20


def test_an_ordered_queue_hands_out_its_first_message_alone_until_that_is_settled(broker):
    queue = broker.queue("one", "order.*", is_ordered=True)
    for number in range(3):
        broker.publish("order.placed", id=str(number))
    one, two = broker.subscriber(queue), broker.subscriber(queue)

    for number in range(3):
        delivery = one.receive(2)
        assert delivery.message.id == str(number)
        assert (one.receive(0.2), two.receive(0.2)) == (None, None)
        delivery.ack()


def test_the_next_subscriber_of_an_ordered_queue_begins_with_what_was_not_settled(broker):
    queue = broker.queue("one", "order.*", is_ordered=True)
    for number in range(2):
        broker.publish("order.placed", id=str(number))
    one = broker.transport.subscriber([queue], prefetch=1)
    one.receive(2)
    two = broker.subscriber(queue)

    one.close()

    for number in range(2):
        delivery = two.receive(5)
        assert (delivery.message.id, delivery.is_redelivered) == (str(number), not number)
        delivery.ack()


@pytest.mark.parametrize("is_last_acked", [True, False])
def test_a_subscriber_that_waits_goes_on_where_a_closed_one_stopped(broker, is_last_acked):
    queue = broker.queue("one", "order.*", is_ordered=True)
    address = ToQueue(queue=queue)
    sent = [Message(id=str(number), type="a.b", body=b"{}") for number in range(50)]
    broker.publisher.publish([Outgoing(address=address, message=each) for each in sent])
    working, seen = broker.subscriber(queue), []

    for _ in range(20):
        delivery = working.receive(5)
        waiting = broker.subscriber(queue)
        assert waiting.receive(0) is None
        # A broker pushes the next message to the same subscriber at once.
        if is_last_acked:
            seen.append(delivery.message.id)
            delivery.ack()
        else:
            assert delivery.message.id == "0"
        working.close()
        working = waiting
    while delivery := working.receive(1):
        seen.append(delivery.message.id)
        delivery.ack()

    assert seen == [each.id for each in sent]


def test_thirty_subscribers_that_close_with_a_message_do_not_use_it_up(broker):
    queue = broker.queue("one", "order.*", is_ordered=True)
    broker.publish("order.placed")

    for _ in range(30):
        subscriber = broker.subscriber(queue)
        assert subscriber.receive(5)
        subscriber.close()

    delivery = broker.subscriber(queue).receive(5)
    assert delivery.is_redelivered
    assert delivery.message.headers.get("x-delivery-count", 0) <= 30


def test_a_closed_subscriber_is_never_drained_and_may_be_closed_again(broker):
    queue = broker.queue("one", "order.*", is_ordered=True)
    broker.publish("order.placed")
    subscriber = broker.subscriber(queue)
    assert subscriber.receive(5)

    subscriber.close()
    subscriber.close()

    assert not subscriber.is_drained()


def test_a_released_message_of_an_ordered_queue_comes_again_before_the_next(broker):
    queue = broker.queue("one", "order.*", is_ordered=True)
    for number in range(2):
        broker.publish("order.placed", id=str(number))
    subscriber = broker.subscriber(queue)

    subscriber.receive(2).release(0.3)

    assert subscriber.receive(0.1) is None
    assert subscriber.receive(5).message.id == "0"


def test_an_older_process_that_declares_less_takes_nothing_away(broker):
    broker.queue("one", "order.*", "invoice.*")

    broker.queue("one", "order.*")

    assert broker.publish("invoice.sent") == Confirmed()
    assert broker.publish("order.placed") == Confirmed()


def test_an_unknown_transport_is_refused_without_repeating_the_url():
    with pytest.raises(BadSetting, match="unknown scheme 'carrier-pigeon'") as refused:
        transports.connect("carrier-pigeon://user:secret@host")

    assert "secret" not in str(refused.value)


def test_a_database_that_is_not_there_is_refused():
    with pytest.raises(BadSetting, match="not a key of DATABASES"):
        transports.connect("database://nowhere")


def test_what_is_removed_is_gone_with_its_bindings_and_its_messages(broker):
    queue, other = broker.queue("one", "order.*"), broker.queue("other", "invoice.*")
    broker.publish("order.placed")

    broker.transport.remove(broker.specs[:1])
    broker.transport.declare([replace(broker.specs[0], patterns=())])
    broker.transport.declare(broker.specs[1:])

    assert broker.publish("order.placed") == Unroutable()
    assert broker.publish("invoice.sent") == Confirmed()
    assert broker.subscriber(queue).receive(0.2) is None
    assert broker.subscriber(other).receive(2)
