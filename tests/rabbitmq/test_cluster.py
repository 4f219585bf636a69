"""Three nodes: one can be done without, and a lost majority is waited for."""

from __future__ import annotations

import json

import pytest

from django_eventbus.models import OutboxEvent
from tests.helpers import eventually
from tests.private_servers import PrivateCluster
from tests.rabbitmq.storm import SECONDS, rounds
from tests.skipping import skipped_if_missing

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgres,
    pytest.mark.rabbitmq,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(240 + 2 * SECONDS),
]


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

    for number in rounds():
        one, two = cluster.nodes[number % 3], cluster.nodes[(number + 1) % 3]
        one.kill()
        running.go_on(100)

        said = len(running.relay.output)
        two.kill()
        eventually(
            lambda: is_held_back(running.relay.output[said:]),  # noqa: B023
            timeout=30,
            message=running.said,
        )
        assert OutboxEvent.objects.exclude(state="published").exists()
        cluster.start(one, two)
        running.go_on()

    running.end()


def is_held_back(output):
    """Without a majority a node takes messages and confirms none, or refuses them."""
    return "Outage" in output or "refused" in output


def assert_queues_are_on_three_nodes(cluster, namespace):
    listed = cluster.nodes[0].control("list_queues", "name", "members", "--formatter", "json")
    ours = [each for each in json.loads(listed) if each["name"].startswith(namespace)]
    assert len(ours) == 8
    assert {len(each["members"]) for each in ours} == {3}
