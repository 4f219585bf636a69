"""Three nodes: one can be done without, and a lost majority is waited for."""

from __future__ import annotations

import json
import time

import pytest

from django_eventbus.durations import seconds
from django_eventbus.models import OutboxEvent
from tests.support.helpers import eventually
from tests.support.private_servers import PrivateCluster
from tests.support.skipping import skipped_if_missing
from tests.transports.rabbitmq.storm import HASTY_OPTIONS, SECONDS, rounds

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgres,
    pytest.mark.rabbitmq,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(240 + 2 * SECONDS),
]

CONFIRM_TIMEOUT = seconds(HASTY_OPTIONS["CONFIRM_TIMEOUT"])
CONNECT_TIMEOUT = seconds(HASTY_OPTIONS["CONNECT_TIMEOUT"])
#: What a machine that is busy with other tests may add to a deadline.
LOADED = 5


@pytest.fixture(scope="module")
def cluster():
    cluster = PrivateCluster()
    try:
        with skipped_if_missing():
            cluster.start()
        yield cluster
    finally:
        cluster.remove()


def test_a_node_killed_under_load_is_done_without_and_a_lost_majority_is_waited_for(storm, cluster):
    running = storm(cluster.nodes[0].url, BROKER_URL=cluster.url)
    assert_queues_are_on_three_nodes(cluster, running.amqp.namespace)

    for _ in rounds():
        # The one that leads: its followers have to elect another one first.
        one = leader_of(cluster, running.amqp.queue())
        two = next(node for node in cluster.nodes if node is not one)
        one.kill()
        running.go_on(100)

        # Sockets stay open, and nobody says that anything is wrong: only a deadline helps.
        with two.standing_still():
            assert_held_back_within_the_deadline(running)
            assert_a_late_comer_waits_too_and_can_be_stopped(running)
        running.go_on()

        two.kill()
        assert_held_back_within_the_deadline(running)
        cluster.start(one, two)
        running.go_on()

    running.end()


def leader_of(cluster, queue):
    listed = listed_queues(cluster, "leader")
    return next(node for node in cluster.nodes if node.node == listed[queue])


def assert_held_back_within_the_deadline(running):
    """Without a majority a node takes messages and confirms none, or refuses them."""
    said, began = len(running.relay.output), time.monotonic()
    eventually(lambda: "Outage" in running.relay.output[said:], timeout=30, message=running.said)
    took = time.monotonic() - began
    assert took < CONFIRM_TIMEOUT + LOADED, took
    assert OutboxEvent.objects.exclude(state="published").exists()
    # However many rows wait, and however often they are tried.
    assert running.relay.output[said:].count("\n") <= 4, running.said()


def assert_a_late_comer_waits_too_and_can_be_stopped(running):
    late = running.start("relay_events")
    late.wait_for("Outage")
    began = time.monotonic()
    late.terminate()
    assert late.wait() == 0
    # It may be in the midst of connecting to the node that does not answer.
    assert time.monotonic() - began < 2 * CONNECT_TIMEOUT + LOADED


def assert_queues_are_on_three_nodes(cluster, namespace):
    listed = listed_queues(cluster, "members")
    ours = [members for name, members in listed.items() if name.startswith(namespace)]
    assert len(ours) == 8
    assert {len(members) for members in ours} == {3}


def listed_queues(cluster, column):
    """Return what a node tells of each queue, by its name."""
    node = cluster.nodes[0]
    listed = json.loads(node.control("list_queues", "name", column, "--formatter", "json"))
    return {each["name"]: each[column] for each in listed}
