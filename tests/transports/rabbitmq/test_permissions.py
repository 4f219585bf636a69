"""Three users with the permissions of docs/how-to/secure-the-broker.md, and nothing more."""

from __future__ import annotations

import re
import threading
from io import StringIO
from pathlib import Path

import pika
import pytest
from django.core.management import call_command

from django_eventbus import publish, transports
from django_eventbus.conf import conf
from django_eventbus.exceptions import BrokerRefused
from django_eventbus.models import DeadLetter, OutboxEvent
from django_eventbus.outbox.relay import Relay
from django_eventbus.subscriptions.queue_specs import queue_specs
from django_eventbus.workers.loops import ConsumerLoop
from tests.shop.models import Effect
from tests.support.helpers import eventually
from tests.support.own_broker import ONE_WORKER

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.rabbitmq,
    ONE_WORKER,
]

PAGE = Path(__file__).parent.parent.parent.parent / "docs/how-to/secure-the-broker.md"


def documented(namespace):
    """Return the users of the page's table with their permissions, for this namespace."""
    rows = re.findall(r"^\| `(\w+)` \| `(.+?)` \| `(.+?)` \| `(.+?)` \|", PAGE.read_text(), re.M)
    names = {"shop.orders": f"{namespace}.shop-tests", "shop.": f"{namespace}."}

    def adapted(pattern):
        for theirs, ours in names.items():
            pattern = pattern.replace(re.escape(theirs), re.escape(ours))
        return pattern.replace(r"\|", "|")

    return {user: [adapted(each) for each in permissions] for user, *permissions in rows}


@pytest.fixture
def host(virtual_host):
    permissions = documented(virtual_host.amqp.namespace)
    assert list(permissions) == ["topology", "relay", "consumer"]
    for user, (configure, write, read) in permissions.items():
        virtual_host.add_user(user, configure, write, read)
    return virtual_host


def declare(host):
    host.become("topology")
    call_command("eventbus_topology", "--apply", "--yes", stdout=StringIO())


def relay(host):
    host.become("relay")
    host.configure(TOPOLOGY="assume")
    relay = Relay(transports.connect(conf.broker_url).publisher(), "default")
    while relay.relay_once():
        pass
    relay.close()


def consume(host):
    host.become("consumer")
    host.configure(TOPOLOGY="check", COLLECT_DLQ=True)
    transport = transports.connect(conf.broker_url)
    transport.declare(queue_specs())
    workers = ConsumerLoop(
        transport, [host.amqp.queue()], threading.Event(), prefetch=5, is_idle=lambda: True
    )
    workers.run()
    workers.close()


def attempt(host, user, act):
    """Do something as *user*; return the code of the broker's refusal, or 0."""
    url = host.amqp.url.replace("guest:guest", f"{user}:secret")
    try:
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            act(channel)
    except pika.exceptions.ChannelClosedByBroker as closed:
        return closed.reply_code
    return 0


def test_the_three_users_do_the_whole_work_between_them(host):
    declare(host)
    ok, once, fail = (str(publish("act.now", {"do": do})) for do in ("ok", "fail once", "fail"))

    relay(host)
    eventually(lambda: consume(host) or DeadLetter.objects.exists(), timeout=30)

    done = Effect.objects.filter(subscription="shop.act").values_list("event_id", flat=True)
    assert sorted(done) == sorted([ok, once])
    assert DeadLetter.objects.get().message_id == fail
    assert not OutboxEvent.objects.exclude(state="published").exists()
    with host.amqp.channel() as channel:
        channel.confirm_delivery()
        channel.basic_publish("", f"{host.amqp.queue()}.dlq", b"{}")
    consume(host)
    assert DeadLetter.objects.filter(kind="foreign").exists()


def test_the_consumer_may_park_to_the_broker(host):
    declare(host)
    publish("act.now", {"do": "give up"})
    relay(host)
    host.configure(PARK_TO="broker")

    consume(host)

    eventually(lambda: consume(host) or DeadLetter.objects.filter(kind="given_up").exists())


REFUSED = 403
ACTS = {
    "declare a queue": lambda channel, queue, events: channel.queue_declare(f"{queue}.new"),
    "delete a queue": lambda channel, queue, events: channel.queue_delete(queue),
    "bind": lambda channel, queue, events: channel.queue_bind(queue, events, "#"),
    "consume": lambda channel, queue, events: channel.basic_get(queue),
    "publish an event": lambda channel, queue, events: channel.basic_publish(events, "a", b""),
    "declare elsewhere": lambda channel, queue, events: channel.queue_declare("elsewhere"),
    "consume elsewhere": lambda channel, queue, events: channel.basic_get("others.queue"),
    "publish elsewhere": lambda channel, queue, events: channel.basic_publish(
        "others.events", "a", b""
    ),
}
FORBIDDEN = {
    "topology": ["declare elsewhere", "consume elsewhere", "publish elsewhere"],
    "relay": [each for each in ACTS if each != "publish an event"],
    "consumer": [each for each in ACTS if each != "consume"],
}


@pytest.mark.parametrize("user", FORBIDDEN)
def test_each_user_may_do_nothing_more(host, user):
    declare(host)
    with host.amqp.channel() as channel:
        channel.queue_declare("others.queue")
        channel.exchange_declare("others.events", "topic")
    queue, events = host.amqp.queue(), f"{host.amqp.namespace}.events"

    codes = {
        name: attempt(host, user, lambda channel, act=act: act(channel, queue, events))
        for name, act in ACTS.items()
    }

    refused = [name for name, code in codes.items() if code == REFUSED]
    assert refused == FORBIDDEN[user]


@pytest.mark.parametrize("user", ["relay", "consumer"])
def test_a_user_that_may_not_declare_is_told_so_in_one_sentence(host, user):
    host.become(user)

    with pytest.raises(BrokerRefused, match="The broker refused the exchange"):
        transports.connect(conf.broker_url).declare(queue_specs())
