"""Ordered queues on a broker whose connections are cut, and that is killed."""

from __future__ import annotations

import json
import time
from io import StringIO
from urllib.parse import urlsplit

import pytest
from django.core.management import call_command

from django_eventbus import publish, subscribe, transports
from django_eventbus.conf import conf
from django_eventbus.events.message import Message
from django_eventbus.exceptions import BrokerRefused
from django_eventbus.models import InboxRecord
from django_eventbus.subscriptions.queue_specs import QueueSpec, queue_specs
from django_eventbus.subscriptions.subscription import registry
from django_eventbus.transports.contract import Outgoing, ToQueue
from tests.end_to_end.steps import ORDERED, assert_in_order, await_steps, publish_steps, taken
from tests.support.amqp import Amqp
from tests.support.helpers import eventually
from tests.support.tcp_proxy import TcpProxy
from tests.transports.rabbitmq.storm import HASTY

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rabbitmq]

STEPS, KEYS = 240, 8


@pytest.fixture
def worker(manage, settings):
    """Publish steps to the broker at a URL; return what starts a consumer of them."""

    namespaces = []

    def begin(url, **changes):
        amqp = Amqp(url, **HASTY, **changes)
        namespaces.append(amqp)
        settings.EVENTBUS = {**settings.EVENTBUS, **amqp.settings}
        publish_steps(STEPS, KEYS, fails=(0, 0, 0, 0, 1))
        env = {**amqp.environment, **ORDERED}
        return lambda: manage("consume_events", "--with-relay", env=env, is_measured=False)

    yield begin
    # First the processes: they would declare again what is deleted.
    manage.close()
    for amqp in namespaces:
        amqp.delete_everything()


def test_order_is_kept_while_connections_are_cut_again_and_again(worker, rabbitmq_url):
    with TcpProxy(urlsplit(rabbitmq_url).port or 5672) as proxy:
        start = worker(rabbitmq_url, BROKER_URL=proxy.url)

        workers = [start(), start()]
        for goal in range(20, STEPS, 20):
            await_steps(goal)
            proxy.cut()
        await_steps(STEPS)

        assert_in_order(STEPS, KEYS)
        assert all(each.is_running for each in workers)


# To the database, a broker that was killed is a connection that was cut, as above.
@pytest.mark.postgres
@pytest.mark.xdist_group("chaos")
@pytest.mark.parametrize("queue_type", ["quorum", "classic"])
def test_order_is_kept_when_the_broker_is_killed_and_started_again(worker, node, queue_type):
    start = worker(node.url, QUEUE_TYPE=queue_type)

    start(), start()
    await_steps(STEPS // 3)
    node.kill()
    node.start()
    await_steps(STEPS)

    assert_in_order(STEPS, KEYS)


def ordered_queue(amqp):
    exchange = f"{amqp.namespace}.events"
    name = amqp.queue("steps")
    return QueueSpec(name=name, exchange=exchange, patterns=(), delays=(), is_ordered=True)


def test_the_next_consumer_takes_over_at_once_from_one_behind_a_proxy(amqp):
    name = amqp.queue("steps")
    spec = ordered_queue(amqp)
    direct = transports.connect(amqp.url)
    direct.declare([spec])
    messages = [Message(id=str(number), type="a.b", body=b"{}") for number in range(3)]
    publisher = direct.publisher()
    publisher.publish([Outgoing(address=ToQueue(queue=name), message=each) for each in messages])
    with TcpProxy(urlsplit(amqp.url).port or 5672) as proxy:
        through = transports.connect(proxy.url)
        through.declare([spec])
        ending, waiting = (each.subscriber([name], prefetch=1) for each in (through, direct))
        ending.receive(5).ack()
        assert waiting.receive(0) is None

        began = time.monotonic()
        ending.close()
        delivery = waiting.receive(5)

        assert delivery.message.id == "1"
        assert time.monotonic() - began < 2
    waiting.close()
    publisher.close()


def test_a_consumer_behind_a_proxy_that_went_silent_is_cut_in_time(amqp):
    name = amqp.queue("steps")
    with TcpProxy(urlsplit(amqp.url).port or 5672) as proxy:
        transport = transports.connect(proxy.url)
        transport.declare([ordered_queue(amqp)])
        subscriber = transport.subscriber([name], prefetch=1)
        assert subscriber.receive(0) is None
        proxy.go_silent()

        began = time.monotonic()
        subscriber.close()

        assert time.monotonic() - began < 2


def test_an_ordered_queue_does_not_wait_for_the_long_handler_of_another(manage, amqp, tmp_path):
    env = {**amqp.environment, **ORDERED}
    files = {"began": str(tmp_path / "began"), "go_on": str(tmp_path / "go_on")}
    ending = manage("consume_events", "--with-relay", env=env)
    publish("act.now", {"do": "wait", **files})
    publish_steps(1)
    eventually((tmp_path / "began").exists, timeout=20)
    await_steps(1)
    waiting = manage("consume_events", "--with-relay", env=env)
    waiting.wait_for("Consuming")

    ending.terminate()
    ending.wait_for("Finishing")
    publish_steps(1, first=1)
    await_steps(2, timeout=5)

    assert ending.is_running
    (tmp_path / "go_on").touch()
    assert ending.wait() == 0


@pytest.mark.parametrize(
    ("arguments", "changes", "fails"),
    [
        (["--queue", "steps", "--max-messages", "20"], {}, (0,)),
        ([], {"EVENTBUS_TEST_SLOW_STEPS": "1s"}, (0,) * 19 + (1,)),
    ],
    ids=["max-messages", "retry"],
)
def test_the_next_consumer_goes_on_in_order_after(manage, amqp, arguments, changes, fails):
    env = {**amqp.environment, **ORDERED, **changes}
    ending = manage("consume_events", "--with-relay", *arguments, env=env)
    ending.wait_for("Consuming")
    waiting = manage("consume_events", "--with-relay", env=env)
    waiting.wait_for("Consuming")

    publish_steps(200, fails=fails)
    if not arguments:
        eventually(InboxRecord.objects.filter(state="retrying").exists, timeout=20)
        ending.terminate()

    assert ending.wait(10) == 0
    await_steps(200 if arguments else 20)
    waiting.terminate()
    assert waiting.wait(10) == 0
    assert [step for _, step in taken()] == [str(each) for each in range(len(taken()))]


def test_a_burst_of_an_ordered_queue_ends_without_an_outage(manage, amqp):
    publish_steps(50)

    for _ in range(3):
        burst = manage(
            "consume_events", "--with-relay", "--burst", env={**amqp.environment, **ORDERED}
        )
        assert burst.wait() == 0
        assert "Outage" not in burst.output

    assert_in_order(50)
    assert amqp.count(amqp.queue("steps")) == 0


def test_a_queue_that_becomes_ordered_is_refused_first_and_then_gets_a_new_version(
    amqp, no_subscriptions
):
    subscribe("step.*", queue="steps", name="step")(lambda event: None)
    transports.connect(conf.broker_url).declare(queue_specs())
    name = amqp.queue("steps")

    become_ordered()
    with pytest.raises(
        BrokerRefused, match=f"queue '{name}' exists on the broker with another type"
    ):
        transports.connect(conf.broker_url).declare(queue_specs())
    steps = json.loads(topology("--apply", "--yes", "--json"))["steps"]

    assert f"declare the queue '{name}.v2'" in steps
    transports.connect(conf.broker_url).declare(queue_specs())


def become_ordered():
    for each in list(registry):
        registry.remove(each)
    subscribe("step.*", queue="steps", name="step", ordered=True)(lambda event: None)


def topology(*options):
    stdout = StringIO()
    call_command("eventbus_topology", *options, stdout=stdout)
    return stdout.getvalue()
