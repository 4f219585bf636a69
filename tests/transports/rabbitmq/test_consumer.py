"""A consumer's connection: alive through long handlers, lost under them, cancelled, named."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager
from functools import partial
from urllib.parse import urlsplit

import pytest
from django.db import transaction

from django_eventbus import publish, transports
from django_eventbus.events.message import Message
from django_eventbus.models import DeadLetter, InboxRecord
from django_eventbus.subscriptions.queue_specs import QueueSpec
from django_eventbus.transports.contract import Outgoing, ToQueue
from django_eventbus.transports.rabbitmq.parameters import version_of
from tests.end_to_end.oracle import is_at_rest
from tests.shop.models import Effect
from tests.support.amqp import Amqp
from tests.support.helpers import eventually
from tests.support.probes import rabbitmq_answers
from tests.support.tcp_proxy import TcpProxy
from tests.transports.rabbitmq.storm import consume_leftovers

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgres,
    pytest.mark.rabbitmq,
]

together = pytest.mark.xdist_group("chaos")


@pytest.fixture
def begin(manage, settings):
    """Start a worker on the broker at a URL, and return it with its namespace."""

    def start(url, *arguments, point_log="", **changes):
        amqp = Amqp(url, **changes)
        settings.EVENTBUS = {**settings.EVENTBUS, **amqp.settings}
        return started(manage, amqp.environment, *arguments, point_log=point_log), amqp

    return start


def started(manage, environment, *arguments, point_log=""):
    options = {"env": environment, "point_log": point_log}
    worker = manage("consume_events", "--with-relay", *arguments, **options)
    worker.wait_for("Consuming")
    return worker


class LongEvent:
    """An event whose handler has begun, and does not end before it is told to."""

    def __init__(self, directory):
        self.began, self.go_on = directory / "began", directory / "go_on"
        files = {"began": str(self.began), "go_on": str(self.go_on)}
        self.id = str(publish("act.now", {"do": "wait", **files}))
        eventually(self.began.exists, timeout=30)

    def end(self):
        self.go_on.touch()
        eventually(lambda: effects() == [self.id] and is_at_rest(), timeout=30)


def effects():
    return list(Effect.objects.filter(subscription="shop.act").values_list("event_id", flat=True))


def end(manage, amqp, worker):
    """Stop the worker and handle what it had not settled: no effect may come of it."""
    worker.terminate()
    assert worker.wait() == 0
    consume_leftovers(partial(manage, env=amqp.environment), amqp)


def test_a_handler_that_outlasts_three_heartbeats_keeps_its_connection(manage, amqp, tmp_path):
    with TcpProxy(urlsplit(amqp.url).port or 5672) as proxy:
        environment = amqp.with_settings(BROKER_URL=proxy.url, BROKER_OPTIONS={"HEARTBEAT": "2s"})
        worker = started(manage, environment)
        event = LongEvent(tmp_path)
        connections, began = [link for link in proxy.links if link.is_open], time.monotonic()

        eventually(lambda: time.monotonic() > began + 6.5, timeout=20)
        event.end()

        assert connections
        assert all(link.is_open for link in connections)
        assert InboxRecord.objects.get(subscription="shop.act").started == 0
        end(manage, amqp, worker)
        assert effects() == [event.id]


@together
def test_a_handler_whose_connection_was_lost_acks_nothing_on_the_next_one(
    manage, begin, node, proxy, tmp_path
):
    worker, amqp = begin(node.url, BROKER_URL=proxy.url)
    event = LongEvent(tmp_path)

    proxy.cut()
    # On the new channel the same tag is another delivery, which is settled in its own time.
    second = str(publish("act.now", {"do": "ok"}))
    eventually(lambda: effects() == [second], timeout=30)
    event.go_on.touch()

    eventually(lambda: len(effects()) == 2 and is_at_rest(), timeout=30)
    # Its copy is settled, too: by then a stale tag would have closed the channel.
    eventually(lambda: not unsettled(node, amqp), timeout=30)
    end(manage, amqp, worker)
    assert sorted(effects()) == sorted([event.id, second])
    assert "unknown delivery tag" not in node.whole_log


def unsettled(node, amqp):
    """Return how many messages the queue has, delivered or not."""
    name = f'rabbit_misc:r(<<"/">>, queue, <<"{amqp.queue()}">>)'
    counted = f"{{ok, Q}} = rabbit_amqqueue:lookup({name}), rabbit_amqqueue:info(Q, [messages])"
    return node.evaluate(counted) != "[{messages, 0}]"


@together
def test_dropped_connections_park_nothing_that_never_started(manage, begin, node, proxy, tmp_path):
    changes = {"BROKER_URL": proxy.url, "START_LIMIT": 1, "CONCURRENCY": 1}
    points = tmp_path / "points"
    worker, amqp = begin(node.url, "--prefetch", "50", point_log=points, **changes)
    with transaction.atomic():
        ids = [str(publish("act.now", {"do": "dawdle"})) for _ in range(60)]

    for _ in range(4):
        handled = len(effects()) + 3
        eventually(lambda: len(effects()) >= handled, timeout=30)  # noqa: B023
        proxy.cut()
    eventually(lambda: len(effects()) >= 60 and is_at_rest(), timeout=60)
    end(manage, amqp, worker)

    assert sorted(effects()) == sorted(ids)
    assert not DeadLetter.objects.exists()
    assert "eventbus.inbox.started" in points.read_text(), "nothing was delivered again"


@together
def test_a_consumer_that_timed_out_subscribes_again(manage, begin, node, tmp_path):
    with hasty_timeouts(node):
        worker, amqp = begin(node.url)
        event = LongEvent(tmp_path)

        worker.wait_for("The outage is over", timeout=40)
        event.end()

        end(manage, amqp, worker)
        assert effects() == [event.id]
        # Before RabbitMQ 4.3 the channel is closed; since then, the consumer is cancelled.
        is_closed = "delivery acknowledgement on channel" in node.whole_log
        assert is_closed or "The broker cancelled the consumer" in worker.output


@contextmanager
def hasty_timeouts(node):
    """Let new channels of *node* close when an ack takes longer than two seconds."""

    def limit(timeout, tick):
        node.evaluate(
            f"application:set_env(rabbit, consumer_timeout, {timeout}),"
            f"application:set_env(rabbit, channel_tick_interval, {tick})"
        )

    limit(2_000, 1_000)
    yield
    limit(1_800_000, 60_000)


@together
def test_connections_and_consumers_are_named_after_service_host_and_process(begin, node):
    worker, amqp = begin(node.url)
    publish("act.now", {"do": "fail once"})
    eventually(lambda: len(effects()) == 1, timeout=30)

    connections = printed(node, "rabbit_networking:connection_info_all([client_properties])")
    consumers = printed(node, 'rabbit_amqqueue:consumers_all(<<"/">>)')

    process = f"{socket.gethostname()}:{worker.pid}"
    for purpose in ("consumer", "publisher"):
        assert f"shop-tests {purpose} {process}" in connections
    assert f"shop-tests {amqp.queue()} {process}" in consumers


def printed(node, expression):
    return node.evaluate(f'lists:flatten(io_lib:format("~0p", [{expression}]))')


def test_what_was_returned_often_is_returned_more_slowly(amqp):
    transport = transports.connect(amqp.url)
    exchange = f"{amqp.namespace}.events"
    transport.declare([QueueSpec(name=amqp.queue(), exchange=exchange, patterns=(), delays=())])
    publisher = transport.publisher()
    subscriber = transport.subscriber([amqp.queue()], prefetch=1)
    message = Message(id="often", type="act.now", body=b"{}")
    publisher.publish([Outgoing(address=ToQueue(queue=amqp.queue()), message=message)])

    for _ in range(20):
        subscriber.receive(10).release()
    returned = subscriber.receive(10)
    began = time.monotonic()
    returned.release(after=0.2)
    subscriber.receive(10).ack()

    # RabbitMQ 4.3 does not count it, so nothing has to slow down before a limit.
    is_counted = version_of(rabbitmq_answers(amqp.url)) < (4, 3)
    assert (time.monotonic() - began > 0.5) is is_counted
    publisher.close()
    subscriber.close()


def test_a_retry_comes_back_and_goes_nowhere_else_whatever_its_message_brought_along(shop):
    elsewhere = shop.amqp.queue("counts")
    # Up to RabbitMQ 3.13 a tier would drop what says that it died in the queue it returns to.
    death = {"queue": shop.queue, "reason": "delivery_limit", "count": 1, "exchange": ""}
    headers = {"eventbus-subscription": "shop.act", "CC": [elsewhere], "x-death": [death]}
    message_id = shop.put("fail once", headers=headers, expiration="60000", user_id="guest")
    assert shop.amqp.count(elsewhere) == 1

    # Only the first attempt: on a slow machine the retry would come back meanwhile.
    shop.work(limit=1)
    eventually(lambda: shop.amqp.count(shop.queue) == 1)

    with shop.amqp.channel() as channel:
        method, properties, _ = channel.basic_get(shop.queue)
        channel.basic_nack(method.delivery_tag, requeue=True)
    assert (properties.expiration, properties.user_id, properties.delivery_mode) == (None, None, 2)
    assert "CC" not in properties.headers
    (tier,) = properties.headers["x-death"]
    assert (tier["queue"], tier["reason"]) == (f"{shop.queue}.retry.50ms", "expired")
    assert "original-expiration" not in tier
    shop.work()
    assert shop.effects == [(message_id, "shop.act")]
    assert shop.amqp.count(elsewhere) == 1


#: The payload of a method frame begins with its class and its number.
BASIC_ACK = b"\x00\x3c\x00\x50"


def test_acks_are_batched_and_never_cover_what_is_unsettled(amqp):
    with TcpProxy(urlsplit(amqp.url).port or 5672) as proxy:
        proxy.said = bytearray()
        transport = transports.connect(proxy.url)
        exchange = f"{amqp.namespace}.events"
        transport.declare([QueueSpec(name=amqp.queue(), exchange=exchange, patterns=(), delays=())])
        publisher = transport.publisher()
        publisher.publish([numbered(each, amqp.queue()) for each in range(10)])
        publisher.close()
        subscriber = transport.subscriber([amqp.queue()], prefetch=10)
        deliveries = [subscriber.receive(10) for _ in range(10)]

        # All of them settle while the connection's thread is busy with something else.
        busy = threading.Event()
        subscriber._feed.connection.call(lambda: busy.wait(10))
        for delivery in deliveries:
            if delivery.message.id != "4":
                delivery.ack()
        busy.set()

        # One frame for those before the one that is missing, and one each for the five after it.
        eventually(lambda: proxy.said.count(BASIC_ACK) == 6)
        subscriber.close()
        eventually(lambda: amqp.count(amqp.queue()) == 1)
        with amqp.channel() as channel:
            assert channel.basic_get(amqp.queue())[1].message_id == "4"


def numbered(number, queue):
    message = Message(id=str(number), type="act.now", body=b"{}")
    return Outgoing(address=ToQueue(queue=queue), message=message)


def test_closing_a_subscriber_counts_no_delivery_where_a_nack_counts_none(amqp):
    transport = transports.connect(amqp.url)
    exchange = f"{amqp.namespace}.events"
    transport.declare([QueueSpec(name=amqp.queue(), exchange=exchange, patterns=(), delays=())])
    publisher = transport.publisher()
    messages = [Message(id=each, type="act.now", body=b"{}") for each in ("one", "two", "three")]
    to = ToQueue(queue=amqp.queue())
    publisher.publish([Outgoing(address=to, message=each) for each in messages])
    publisher.close()

    for _ in range(3):
        subscriber = transport.subscriber([amqp.queue()], prefetch=2)
        received = [subscriber.receive(10).message.id for _ in range(2)]
        subscriber.close()
        with amqp.channel() as channel:
            _, properties, _ = channel.basic_get(amqp.queue())
            channel.basic_nack(1, requeue=True)

    assert len(set(received)) == 2
    eventually(lambda: amqp.count(amqp.queue()) == 3)
    is_counted = version_of(rabbitmq_answers(amqp.url)) < (4, 3)
    assert bool((properties.headers or {}).get("x-delivery-count")) is is_counted
