"""eventbus_ping through RabbitMQ."""

from __future__ import annotations

import json
import threading
from io import StringIO

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connections

from django_eventbus import transports
from django_eventbus.conf import conf
from django_eventbus.models import DeadLetter, InboxRecord
from django_eventbus.subscriptions.queue_specs import queue_specs
from django_eventbus.workers.loops import ConsumerLoop
from tests.support.own_broker import ONE_WORKER
from tests.transports.rabbitmq.test_permissions import documented

pytestmark = [
    pytest.mark.rabbitmq,
    pytest.mark.django_db(transaction=True),
]


def ping(*options):
    stdout = StringIO()
    call_command("eventbus_ping", "--json", *options, stdout=stdout)
    return {each["queue"]: each["seconds"] for each in json.loads(stdout.getvalue())}


@pytest.fixture
def consuming():
    """Consume queues, in a thread, until the end of the test."""
    stop, threads = threading.Event(), []

    def start(transport, *queues):
        workers = ConsumerLoop(transport, queues, stop, prefetch=1)

        def loop():
            try:
                workers.run()
            finally:
                workers.close()
                connections.close_all()

        threads.append(threading.Thread(target=loop))
        threads[-1].start()

    yield start
    stop.set()
    for thread in threads:
        thread.join(20)


def test_each_queue_that_is_consumed_answers_and_a_silent_one_is_named(shop, consuming):
    consuming(shop.transport, shop.queue)

    answered = ping("--queue", "acts", "--timeout", "20s")
    with pytest.raises(CommandError, match=f"from {shop.amqp.queue('counts')}. Start"):
        ping("--timeout", "1s")

    assert 0 < answered.pop(shop.queue) < 20
    assert answered == {}
    assert not InboxRecord.objects.exists()
    assert not DeadLetter.objects.exists()


def test_a_ping_without_a_reply_to_is_only_acked(shop):
    shop.put(type="system.ping.1", no_id=True)
    shop.put(type="system.ping.1", body=b"no JSON")
    shop.put(type=None, exchange=conf.events_exchange, to="system.ping.1")

    shop.work()

    assert shop.amqp.count(shop.queue) == shop.amqp.count(shop.dlq) == 0
    assert not InboxRecord.objects.exists()
    assert not DeadLetter.objects.exists()


def test_a_ping_that_a_stranger_wants_answered_into_a_queue_is_not(shop):
    side = f"{shop.queue}.side"
    with shop.amqp.channel() as channel:
        channel.queue_declare(side)

    shop.put(type="system.ping", reply_to=side)
    shop.work()

    assert shop.amqp.count(side) == shop.amqp.count(shop.queue) == 0


def test_a_ping_that_dies_in_the_broker_makes_no_dead_letter(shop):
    shop.bury(type="system.ping", reply_to="amq.rabbitmq.reply-to.gone")

    shop.work()

    assert shop.amqp.count(shop.dlq) == 0
    assert not DeadLetter.objects.exists()


def test_a_ping_to_a_missing_exchange_is_refused_in_one_sentence(shop):
    shop.configure(NAMES={"events_exchange": "nowhere"})

    with pytest.raises(CommandError, match=r"The broker refused the ping: .*no exchange 'nowhere'"):
        ping()


def test_a_ping_that_no_queue_takes_is_silent_at_once(shop):
    with shop.amqp.channel() as channel:
        for name in ("acts", "counts"):
            channel.queue_unbind(shop.amqp.queue(name), conf.events_exchange, "system.#")

    with pytest.raises(CommandError, match="No answer within 1h"):
        ping("--timeout", "1h")


@pytest.mark.parametrize("again", [1, 2])
def test_a_bus_that_was_declared_without_it_gets_the_binding_at_the_next_start(shop, again):
    with shop.amqp.channel() as channel:
        channel.queue_unbind(shop.queue, conf.events_exchange, "system.#")

    for _ in range(again):
        transports.connect(conf.broker_url).declare(queue_specs())

    shop.put(type="system.ping", exchange=conf.events_exchange, to="system.ping")
    assert shop.amqp.count(shop.queue) == 1


@ONE_WORKER
def test_the_relay_s_user_may_ping_and_the_consumer_s_may_answer(virtual_host, consuming):
    host = virtual_host
    for user, permissions in documented(host.amqp.namespace).items():
        host.add_user(user, *permissions)
    host.become("topology")
    transports.connect(conf.broker_url).declare(queue_specs())
    host.become("consumer")
    host.configure(TOPOLOGY="check", COLLECT_DLQ=True)
    consumer = transports.connect(conf.broker_url)
    consuming(consumer, *(spec.name for spec in queue_specs()))
    host.become("relay")
    host.configure(TOPOLOGY="assume")

    assert set(ping("--timeout", "20s")) == {spec.name for spec in queue_specs()}
