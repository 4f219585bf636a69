"""Ordered subscriptions with real processes, which are killed: per key as published, once each."""

from __future__ import annotations

import pytest

from django_eventbus.models import Attempt, InboxRecord, QueuedMessage
from tests.end_to_end.oracle import FAST, come_to_rest
from tests.end_to_end.steps import (
    ORDERED,
    assert_in_order,
    await_start,
    await_steps,
    publish_steps,
    stop_in_turn,
    taken,
)
from tests.support.helpers import eventually

KILLED = -9

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def worker(manage):
    """Start a consumer that has the ordered subscription, and a relay."""

    def start(*, kill_at="", **environment):
        env = {**FAST, **ORDERED, **environment}
        return manage("consume_events", "--with-relay", env=env, kill_at=kill_at, is_measured=False)

    return start


def survive(worker, number, keys):
    """Kill one of two consumers again and again while they work off so many steps."""
    workers = [worker(), worker()]
    for goal in range(number // 8, number, number // 8):
        await_steps(goal)
        workers.pop(0).kill()
        workers.append(worker())
    await_steps(number)
    assert_in_order(number, keys)
    await_start(workers)
    return workers


@pytest.mark.timeout(300)
def test_hundreds_of_events_of_twenty_keys_are_handled_in_order_whoever_dies(worker):
    publish_steps(400, keys=20, fails=(0,) * 17 + (1, 1, 2))

    survive(worker, 400, keys=20)

    come_to_rest()
    assert_in_order(400, keys=20)
    assert InboxRecord.objects.filter(state="handled").count() == 400


@pytest.mark.timeout(300)
@pytest.mark.postgres
@pytest.mark.rabbitmq
def test_hundreds_of_events_of_twenty_keys_are_handled_in_order_through_rabbitmq(manage, amqp):
    def worker():
        env = {**amqp.environment, **ORDERED}
        return manage("consume_events", "--with-relay", env=env, is_measured=False)

    publish_steps(400, keys=20, fails=(0,) * 17 + (1, 1, 2))

    for each in survive(worker, 400, keys=20):
        each.terminate()
        assert each.wait() == 0
    assert amqp.count(amqp.queue("steps")) == 0


@pytest.mark.parametrize(
    "point",
    [
        "database.leased",
        "inbox.called",
        "inbox.failed",
        "inbox.recorded",
        "ordering.waiting",
        "ordering.waiting:2",
        "inbox.committed",
        "consumer.acked",
    ],
)
def test_a_kill_anywhere_on_the_way_of_an_ordered_message_keeps_order_and_effect(worker, point):
    publish_steps(3, fails=(2,))

    assert worker(kill_at=f"eventbus.{point}").wait() == KILLED
    worker()
    await_steps(3)
    come_to_rest()

    assert_in_order(3)
    attempts = Attempt.objects.order_by("message_id", "attempt").values_list("attempt", flat=True)
    assert list(attempts) == [1, 2] * 3


def test_only_one_of_two_consumers_works_and_the_other_takes_over_when_it_ends(worker):
    publish_steps(2, fails=(0,))
    one, two = worker(), worker()
    await_steps(2)
    await_start([one, two])

    for each, number in ((one, 4), (two, 0)):
        each.terminate()
        assert each.wait() == 0
        if number:
            publish_steps(2)
            await_steps(number)


@pytest.mark.timeout(300)
def test_order_is_kept_while_consumers_with_a_backlog_are_stopped_in_turn(worker):
    stop_in_turn(worker, backlog=30)


@pytest.mark.timeout(300)
@pytest.mark.postgres
@pytest.mark.rabbitmq
def test_order_is_kept_while_consumers_of_rabbitmq_are_stopped_in_turn(manage, amqp):
    def worker():
        env = {**amqp.environment, **ORDERED}
        return manage("consume_events", "--with-relay", env=env, is_measured=False)

    stop_in_turn(worker, backlog=250)


def test_sigterm_does_not_wait_for_the_retry(worker):
    publish_steps(2, fails=(1, 1))
    running = worker(EVENTBUS_TEST_SLOW_STEPS="1m")
    eventually(Attempt.objects.exists, timeout=20)

    running.terminate()

    assert running.wait(10) == 0
    assert taken() == []
    assert InboxRecord.objects.get().state == "retrying"
    assert QueuedMessage.objects.count() == 2
