"""Every outcome of a publish has a row outcome, on a real broker."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from contextlib import contextmanager

import pika
import pytest

from django_eventbus import publish, publish_many, signals, transports
from django_eventbus.conf import conf
from django_eventbus.consumer.consumer import Consumer
from django_eventbus.events.message import Message, uuid7
from django_eventbus.exceptions import BrokerUnavailable
from django_eventbus.models import InboxRecord, OutboxEvent
from django_eventbus.outbox import relay
from django_eventbus.outbox.relay import Relay
from django_eventbus.subscriptions.queue_specs import queue_specs
from django_eventbus.transports.contract import (
    Confirmed,
    Outgoing,
    Refused,
    Rejected,
    ToExchange,
    ToQueue,
)
from django_eventbus.transports.rabbitmq.publisher import ConfirmingLine
from tests.shop.models import Effect
from tests.support.helpers import eventually
from tests.support.own_broker import MAX_MESSAGE_SIZE, ONE_WORKER
from tests.support.tcp_proxy import TcpProxy

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgres,
    pytest.mark.rabbitmq,
]


class Line:
    """A relay and what it needs, on the broker that the settings name."""

    def __init__(self):
        self.transport = transports.connect(conf.broker_url)
        self.transport.declare(queue_specs())
        self.publisher = self.transport.publisher()
        self.relay = Relay(self.publisher, "default", batch_size=500)

    def copies(self, queue="counts"):
        """Take everything out of a queue; return how often each message was in it."""
        with raw() as channel:
            found = iter(lambda: channel.basic_get(conf.queue(queue), auto_ack=True), NOTHING)
            return Counter(properties.message_id for _, properties, _ in found)


NOTHING = (None, None, None)


@contextmanager
def raw():
    with pika.BlockingConnection(pika.URLParameters(conf.broker_url)) as connection:
        yield connection.channel()


@contextmanager
def a_line():
    line = Line()
    try:
        yield line
    finally:
        line.publisher.close()


@contextmanager
def a_line_through(proxy, settings):
    change_settings(settings, BROKER_URL=proxy.url)
    with a_line() as line:
        yield line


@pytest.fixture
def line(amqp):
    with a_line() as line:
        yield line


@pytest.fixture
def proxy(amqp, settings):
    upstream = pika.URLParameters(amqp.url)
    with TcpProxy(upstream.port, upstream.host) as proxy:
        settings.EVENTBUS = {**settings.EVENTBUS, "BROKER_URL": proxy.url}
        yield proxy


def change_settings(settings, **changes):
    settings.EVENTBUS = {**settings.EVENTBUS, **changes}


def states():
    return Counter(OutboxEvent.objects.values_list("state", flat=True))


def change(row, **values):
    OutboxEvent.objects.filter(pk=row.pk).update(**values)


@ONE_WORKER
def test_three_guilty_rows_in_a_batch_of_500_cost_the_others_nothing(own_broker):
    publish_many([("count.up", {})] * 500)
    rows = list(OutboxEvent.objects.order_by("id"))
    change(rows[100], exchange="nowhere")
    change(rows[250], headers={"wide": "x" * 140_000})
    change(rows[400], body=json.dumps("x" * MAX_MESSAGE_SIZE).encode())
    guilty = {rows[index].message_id for index in (100, 250, 400)}
    with a_line() as line:
        assert line.relay.relay_once() == 500
        copies = line.copies()

    assert states() == {"published": 497, "scheduled": 1, "failed": 2}
    errors = [OutboxEvent.objects.get(pk=rows[index].pk).error for index in (100, 250, 400)]
    assert "404 NOT_FOUND - no exchange 'nowhere'" in errors[0]
    assert "its properties and headers have 140" in errors[1]
    assert "406 PRECONDITION_FAILED - message size" in errors[2]
    assert set(copies) == {row.message_id for row in rows} - guilty
    # Once, and once more for each of the two that closed the channel.
    assert max(copies.values()) <= 3


def test_all_rows_of_a_missing_exchange_are_held_at_once(line, monkeypatch):
    opened, open_channel = [], ConfirmingLine._open
    monkeypatch.setattr(
        ConfirmingLine, "_open", lambda line: (opened.append(line), open_channel(line))
    )
    publish_many([("count.up", {})] * 60)
    lost = [row.pk for row in OutboxEvent.objects.order_by("id")][::2]
    nowhere = f"{conf.namespace}.nowhere"
    OutboxEvent.objects.filter(pk__in=lost).update(exchange=nowhere)

    line.relay.relay_once()

    assert states() == {"published": 30, "scheduled": 30}
    # The first channel, one to find out who closed it, and one to go on with.
    assert len(opened) == 3
    assert max(line.copies().values()) <= 2
    with raw() as channel:
        channel.exchange_declare(nowhere, "fanout", durable=True)
        channel.queue_bind(conf.queue("counts"), nowhere)
        OutboxEvent.objects.filter(pk__in=lost).update(state="ready")
        line.relay.relay_once()
        channel.exchange_delete(nowhere)
    assert states() == {"published": 60}
    assert len(line.copies()) == 30


def test_a_full_queue_holds_the_row_and_the_healthy_queue_has_one_effect(line, monkeypatch, caplog):
    monkeypatch.setattr(relay, "HOLD_WAIT", (0.01, 0.02))
    full = f"{conf.namespace}.full"
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    with raw() as channel:
        channel.queue_declare(full, arguments=arguments)
        channel.queue_bind(full, conf.events_exchange, "count.#")
        for _ in range(3):
            publish("count.up", {})
        line.relay.relay_once()
        assert states() == {"published": 1, "scheduled": 2}
        assert {row.error for row in held()} == {"a queue is full or cannot accept the message now"}

        for left in (1, 0):
            channel.queue_purge(full)
            eventually(lambda left=left: (line.relay.relay_once(), held().count() == left)[1])
        channel.queue_delete(full)

    assert caplog.text.count("Outage: The broker does not accept messages for") == 1
    assert caplog.text.count("The outage is over") == 1
    consume_all(line, "counts")
    effects = Counter(Effect.objects.values_list("event_id", flat=True))
    assert effects == {row.message_id: 1 for row in OutboxEvent.objects.all()}


def test_a_connection_on_which_everything_was_refused_is_left(line, monkeypatch):
    monkeypatch.setattr(relay, "HOLD_WAIT", (0.01, 0.02))
    full = f"{conf.namespace}.full"
    with raw() as channel:
        channel.queue_declare(full, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        channel.queue_bind(full, conf.events_exchange, "count.#")
        publish_many([("count.up", {})] * 2)
        line.relay.relay_once()
        assert states() == {"published": 1, "scheduled": 1}
        partly_refused = line.publisher._line.connection
        assert partly_refused.is_open

        eventually(lambda: line.relay.relay_once() == 1)

        assert states() == {"published": 1, "scheduled": 1}
        assert not partly_refused.is_open
        channel.queue_delete(full)
    eventually(lambda: (line.relay.relay_once(), states() == {"published": 2})[1])


@contextmanager
def full_queue():
    """A queue that takes nothing any more."""
    name = f"{conf.namespace}.full"
    with raw() as channel:
        arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
        channel.queue_declare(name, arguments=arguments)
        channel.confirm_delivery()
        channel.basic_publish("", name, b"")
        yield name
        channel.queue_delete(name)


def test_a_connection_on_which_somebody_else_waits_is_not_left(line):
    message = Message(id=str(uuid7()), type="a.b", body=b"{}")
    others = Outgoing(address=ToQueue(queue=conf.queue("counts")), message=message)
    with full_queue() as full:
        to_full = Outgoing(address=ToExchange(exchange="", routing_key=full), message=message)
        pending = line.publisher.prepare([others])
        pending.send()
        connection = line.publisher._line.connection

        (refused,) = line.publisher.publish([to_full])

        assert isinstance(refused, Refused)
        assert connection.is_open
        assert pending.receipts() == [Confirmed()]
        line.publisher.publish([to_full])
        assert not connection.is_open


def test_a_connection_is_not_left_for_want_of_an_exchange(line):
    message = Message(id=str(uuid7()), type="a.b", body=b"{}")
    nowhere = ToExchange(exchange=f"{conf.namespace}.nowhere", routing_key="a.b")

    (refused,) = line.publisher.publish([Outgoing(address=nowhere, message=message)])

    assert "NOT_FOUND" in refused.reason
    assert line.publisher._line.connection.is_open


def held():
    return OutboxEvent.objects.filter(state="scheduled")


def consume_all(line, name):
    subscriber = line.transport.subscriber([conf.queue(name)], prefetch=1)
    consumer = Consumer(line.publisher)
    while not subscriber.is_drained():
        if delivery := subscriber.receive(0.2):
            consumer.consume(delivery)
    subscriber.close()


def test_a_connection_lost_with_one_message_in_flight_blames_nobody(proxy):
    with a_line() as line:
        warm_up(line)
        publish("count.up", {})
        proxy.mute()
        ended = in_thread(line.relay.relay_once)
        # The broker has it, and its confirm is lost.
        eventually(lambda: count(proxy, "counts") == 1)
        proxy.cut()

        with pytest.raises(BrokerUnavailable) as raised:
            ended()
        assert raised.value.kind == "connection"
        assert states() == {"ready": 1}
        assert line.relay.relay_once() == 1
        assert states() == {"published": 1}
        assert list(line.copies().values()) == [2]


def warm_up(line):
    """Have the channel open, and nothing left of it."""
    publish("count.up", {})
    assert line.relay.relay_once() == 1
    OutboxEvent.objects.all().delete()
    line.copies()


def in_thread(work):
    """Start *work*; return what waits for its end and raises what it raised."""
    outcome = []

    def run():
        from django.db import connection

        try:
            outcome.append(work())
        except Exception as error:
            outcome.append(error)
        finally:
            connection.close()

    def ended():
        thread.join(30)
        if isinstance(outcome[0], Exception):
            raise outcome[0]
        return outcome[0]

    thread = threading.Thread(target=run)
    thread.start()
    return ended


def count(proxy, name):
    host, port = proxy.target
    with pika.BlockingConnection(pika.ConnectionParameters(host, port)) as connection:
        declared = connection.channel().queue_declare(conf.queue(name), passive=True)
        return declared.method.message_count


def test_no_confirm_before_the_deadline_drops_the_socket_and_keeps_the_rows(proxy, settings):
    change_settings(settings, BROKER_OPTIONS={"CONFIRM_TIMEOUT": "1s"})
    with a_line() as line:
        warm_up(line)
        publish_many([("count.up", {})] * 3)
        threads = threading.active_count()
        proxy.mute()
        began = time.monotonic()

        with pytest.raises(BrokerUnavailable, match="did not confirm in time") as raised:
            line.relay.relay_once()

        assert time.monotonic() - began < 10
        assert raised.value.kind == "io"
        assert states() == {"ready": 3}
        # Its I/O thread ends with the socket.
        eventually(lambda: threading.active_count() < threads)
        assert line.relay.relay_once() == 3
        assert states() == {"published": 3}


@ONE_WORKER
def test_a_broker_that_stands_still_is_an_outage_within_the_deadline(own_broker, settings):
    change_settings(settings, BROKER_OPTIONS={"CONFIRM_TIMEOUT": "1s", "CONNECT_TIMEOUT": "1s"})
    publish("count.up", {})
    with a_line() as line:
        line.publisher.open()
        with own_broker.server.standing_still():
            for kind in ("io", "connection"):
                with pytest.raises(BrokerUnavailable) as raised:
                    line.relay.relay_once()
                assert raised.value.kind == kind
                eventually(lambda: not line.publisher._line.connection.is_open)
        change_settings(settings, BROKER_OPTIONS={})
        assert line.relay.relay_once() == 1
        assert states() == {"published": 1}


@ONE_WORKER
def test_a_broker_in_alarm_is_waited_for_without_sending(own_broker):
    publish_many([("count.up", {})] * 100)
    with a_line() as line:
        line.publisher.open()
        connection = line.publisher._line.connection
        with own_broker.alarm():
            for _ in range(5):
                with pytest.raises(BrokerUnavailable, match="has raised an alarm") as raised:
                    line.relay.relay_once()
                assert raised.value.kind == "blocked"
            assert states() == {"ready": 100}

        eventually(lambda: not connection.blocked, timeout=20)
        assert line.relay.relay_once() == 100
        assert states() == {"published": 100}
        assert line.publisher._line.connection is connection
        copies = line.copies()
    # At most what was in the socket when the alarm was met, and once afterwards.
    assert len(copies) == 100
    assert max(copies.values()) <= 2


@ONE_WORKER
def test_in_an_alarm_acks_go_on_and_a_retry_waits_for_its_end(own_broker):
    publish("act.now", {"do": "fail once"})
    publish_many([("count.up", {})] * 3)
    with a_line() as line, receiving(line, "counts") as counts, receiving(line, "acts") as acts:
        assert line.relay.relay_once() == 4
        consumer = Consumer(line.publisher)
        with own_broker.alarm():
            publish_many([("count.up", {})] * 100)
            with pytest.raises(BrokerUnavailable):
                line.relay.relay_once()
            for _ in range(3):
                consumer.consume(counts.receive(20))
            with pytest.raises(BrokerUnavailable, match="has raised an alarm"):
                consumer.consume(acts.receive(20))
            assert Effect.objects.filter(subscription="shop.count").count() == 3
            assert not Effect.objects.filter(subscription="shop.act").exists()

        eventually(lambda: not line.publisher._line.connection.blocked, timeout=20)
        for _ in range(2):
            consumer.consume(acts.receive(20))
        assert Effect.objects.filter(subscription="shop.act").count() == 1
        assert InboxRecord.objects.get(subscription="shop.act").attempt == 2


@contextmanager
def receiving(line, name):
    subscriber = line.transport.subscriber([conf.queue(name)], prefetch=1)
    try:
        yield subscriber
    finally:
        subscriber.close()


@pytest.mark.parametrize(
    ("policy", "state", "error"),
    [
        ("flag", "unroutable", "no queue is bound to receive it"),
        ("hold", "scheduled", "no queue is bound to receive it"),
        ("ignore", "published", ""),
    ],
)
def test_what_the_broker_returns_is_settled_as_the_policy_says(
    line, settings, policy, state, error
):
    change_settings(settings, UNROUTABLE=policy)
    heard = []

    def hear(row, **details):
        heard.append((row.type, details["policy"]))

    signals.event_unroutable.connect(hear)
    publish_many([("nobody.wants", {}), ("count.up", {})])

    assert line.relay.relay_once() == 2

    assert list(OutboxEvent.objects.order_by("id").values_list("state", "error")) == [
        (state, error),
        ("published", ""),
    ]
    assert heard == [("nobody.wants", policy)]


def test_what_can_never_be_sent_is_rejected_and_the_line_goes_on(line):
    def to(queue, **changes):
        values = {"id": str(uuid7()), "type": "a.b", "body": b"{}", **changes}
        return Outgoing(address=ToQueue(queue=queue), message=Message(**values))

    fine = to(conf.queue("counts"))
    batch = [fine, to("q" * 256), to("\ud800"), to("q", id="i" * 256), fine]
    batch.append(to("q", headers={"far": 2**64}))

    receipts = line.publisher.publish(batch)

    assert [isinstance(each, Rejected) for each in receipts] == [
        False,
        True,
        True,
        True,
        False,
        True,
    ]
    assert receipts[0] == receipts[4] == Confirmed()
    assert line.publisher.publish([]) == []


@ONE_WORKER
def test_50_lost_connections_leave_no_connection_channel_or_thread_behind(own_broker, settings):
    with TcpProxy(own_broker.server.port) as proxy, a_line_through(proxy, settings) as line:
        subscriber = line.transport.subscriber([conf.queue("counts")], prefetch=1)

        def work():
            publish("count.up", {})
            line.relay.relay_once()
            while not (delivery := subscriber.receive(1)):
                pass
            delivery.ack()

        def counts():
            return own_broker.count("connections"), own_broker.count("channels")

        work()
        before, threads = counts(), amqp_threads()
        for _ in range(50):
            proxy.cut()
            eventually(lambda: succeeds(work), interval=0.01)
        assert eventually(lambda: amqp_threads() == threads, timeout=20)
        assert eventually(lambda: counts() == before, timeout=20), counts()
        subscriber.close()
    assert eventually(lambda: amqp_threads() == 0, timeout=20)


def amqp_threads():
    return sum(thread.name.startswith("amqp ") for thread in threading.enumerate())


def succeeds(work):
    try:
        work()
    except BrokerUnavailable:
        return False
    return True
