"""Something is broken under load: nothing lost, nothing twice in effect."""

from __future__ import annotations

from contextlib import suppress

import pytest
from pika.exceptions import ChannelClosedByBroker

from tests.end_to_end.oracle import become_exactly_once, publish_acts
from tests.end_to_end.private import PrivateProject
from tests.support.amqp import Amqp
from tests.support.helpers import eventually
from tests.transports.rabbitmq.storm import (
    ALARM,
    HASTY,
    HASTY_OPTIONS,
    consume_leftovers,
    last,
    rounds,
)

#: More than any disk has, in a unit that rabbitmqctl 3.10 reads.
NEVER_ENOUGH = "100000GB"

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgres,
    pytest.mark.rabbitmq,
    pytest.mark.xdist_group("chaos"),
]


def test_a_broker_killed_and_restarted_under_load_loses_nothing(storm, node):
    running = storm(node.url)

    for _ in rounds():
        former = running.outages()
        node.kill()
        running.notice(former)
        node.start()
        running.go_on()

    running.end()


def test_connections_that_are_cut_lose_nothing(storm, proxy):
    running = storm(proxy.url)

    for _ in rounds():
        for _ in range(5):
            proxy.cut()
            running.go_on()

    running.end()


def test_half_open_connections_are_noticed_and_lose_nothing(storm, proxy):
    running = storm(proxy.url, BROKER_OPTIONS={**HASTY_OPTIONS, "HEARTBEAT": "1s"})

    for _ in rounds():
        former = running.outages()
        proxy.go_silent()
        running.notice(former)
        proxy.come_back()
        running.go_on()

    running.end()


def limit_disk(node, size):
    """Let the broker be in alarm while less than this is free."""
    assert node.evaluate(f'rabbit_disk_monitor:set_disk_free_limit("{size}")') == "ok"


def test_a_disk_alarm_holds_back_publishing_and_loses_nothing(storm, node):
    running = storm(node.url)

    for _ in rounds():
        former = running.outages()
        limit_disk(node, NEVER_ENOUGH)
        try:
            running.relay.wait_for("The broker blocks publishing")
            # Deliveries and acks go on: they have a connection of their own.
            eventually(lambda: running.count() == 0, timeout=20, message=running.said)
            last(ALARM)
        finally:
            limit_disk(node, "50MB")
        running.go_on()
        # Not once for each thread and each retry.
        counts = zip(running.outages(), former, strict=True)
        assert all(new - old <= 1 for new, old in counts), running.said()

    running.end()


def test_postgresql_crashing_behind_rabbitmq_loses_nothing(manage, node, private_postgres):
    amqp = Amqp(node.url, **HASTY)
    project = PrivateProject(manage, private_postgres, amqp.environment)
    ids = project.publish(300)
    workers = [project.start("consume_events", "--with-relay") for _ in range(2)]

    for number in rounds():
        ids += project.publish(100) if number else []
        eventually(lambda: project.count("shop_effect") > len(ids) - 280, timeout=30)  # noqa: B023
        private_postgres.stop(mode="immediate")
        for worker in workers:
            worker.wait_for("Outage")
        private_postgres.start()
    eventually(lambda: project.count("shop_effect") >= len(ids), timeout=60)
    eventually(lambda: amqp.count(amqp.queue("counts")) == 0, timeout=20)
    for worker in workers:
        worker.terminate()

    assert [worker.wait() for worker in workers] == [0, 0]
    consume_leftovers(project.start, amqp, "counts")
    assert project.effects() == sorted(ids)
    assert project.count("eventbus_attempt") == project.count("eventbus_deadletter") == 0


@pytest.mark.parametrize("what", ["tier", "retry exchange"])
def test_a_retry_whose_tier_was_deleted_declares_it_and_goes_on(manage, amqp, what):
    worker = manage("consume_events", "--with-relay", env=amqp.environment)
    worker.wait_for("Consuming")
    with amqp.channel() as channel:
        if what == "tier":
            channel.queue_delete(amqp.queue("acts.retry.50ms"))
        else:
            channel.exchange_delete(amqp.queue("acts.retry"))

    events = publish_acts()

    become_exactly_once(events)
    assert amqp.count(amqp.queue("acts.retry.50ms")) == 0
    assert "Outage" not in worker.output
    worker.terminate()
    assert worker.wait() == 0


def test_a_consumer_whose_queue_was_deleted_declares_it_and_subscribes_again(manage, amqp):
    worker = manage("consume_events", "--with-relay", env=amqp.environment)
    worker.wait_for("Consuming")
    eventually(lambda: consumers_of(amqp, "acts"))
    with amqp.channel() as channel:
        channel.queue_delete(amqp.queue("acts"))
    worker.wait_for("The broker cancelled the consumer")
    eventually(lambda: consumers_of(amqp, "acts"), timeout=20)

    events = publish_acts()

    become_exactly_once(events)
    worker.terminate()
    assert worker.wait() == 0


def consumers_of(amqp, queue):
    """Return how many consume a queue; none if it is not there."""
    with suppress(ChannelClosedByBroker), amqp.channel() as channel:
        return channel.queue_declare(amqp.queue(queue), passive=True).method.consumer_count
    return 0
