"""Ordered queues on a broker whose connections are cut, and that is killed."""

from __future__ import annotations

import json
from io import StringIO
from urllib.parse import urlsplit

import pytest
from django.core.management import call_command

from django_eventbus import subscribe, transports
from django_eventbus.conf import conf
from django_eventbus.exceptions import BrokerRefused
from django_eventbus.subscriptions.queue_specs import queue_specs
from django_eventbus.subscriptions.subscription import registry
from tests.end_to_end.steps import ORDERED, assert_in_order, await_steps, publish_steps
from tests.support.amqp import Amqp
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
