"""A burst ends when queues, outbox and plans are at rest, and not a moment before."""

from __future__ import annotations

import threading

import pytest

from django_eventbus.conf import conf
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.redrive import plans
from django_eventbus.redrive.plans import Pace, make_plan
from django_eventbus.workers.loops import ConsumerLoop, IdleCheck
from tests.shop.models import Effect

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def workers(bus):
    workers = ConsumerLoop(bus.transport, [conf.queue()], threading.Event(), prefetch=1)
    yield workers
    workers.close()


@pytest.fixture
def is_idle(bus, workers):
    return IdleCheck([workers], [bus.relay_loop])


@pytest.fixture
def plan(bus):
    """A plan of two, one after the other, whose handler is mended."""
    broken = ["yes"]

    @bus.subscribe("order.*", name="faulty", retry=[])
    def faulty(event):
        if broken:
            raise ValueError
        Effect.objects.create(event_id=event.meta.id, subscription="faulty")

    bus.put()
    bus.put()
    bus.drain()
    broken.clear()
    pace = Pace(canary=0, rate=1_000_000, in_flight=1, fail_percent=20, tries=1)
    plan = make_plan(Selection(), by="ada", reason="mended", using="default", pace=pace)
    return plans.start(plan.pk, by="ada", using="default")


def consume(workers):
    workers._consume(workers._receive())


def test_before_its_first_turn_a_relay_does_not_know_whether_a_plan_moves(bus, is_idle):
    assert not is_idle()

    bus.relay()

    assert is_idle()


def test_what_a_plan_has_sent_is_to_be_handled_first(bus, plan, workers, is_idle):
    bus.relay()
    assert not is_idle()

    consume(workers)
    assert Effect.objects.count() == 1
    assert not is_idle()


def test_an_answer_has_to_be_seen_by_a_turn_of_the_plan_that_awaits_it(bus, plan, workers, is_idle):
    bus.relay()
    bus.relay_loop.plans.run_once()
    assert not bus.relay_loop.plans.is_moving
    assert not is_idle(), "the first is in its queue"

    consume(workers)
    assert not is_idle(), "the plan has not heard of the first"

    bus.relay()
    assert not is_idle(), "the second is in its queue"

    consume(workers)
    bus.relay()
    assert not is_idle(), "what it heard may let more follow"
    bus.relay()

    assert is_idle()
    plan.refresh_from_db()
    assert plan.state == "done"


def test_a_plan_that_waits_for_another_queue_does_not_keep_a_burst(bus, plan, workers):
    elsewhere = ConsumerLoop(bus.transport, [conf.queue("acts")], threading.Event(), prefetch=1)
    is_idle = IdleCheck([elsewhere], [bus.relay_loop])

    bus.relay()
    assert not is_idle(), "it moves"
    bus.relay()

    assert is_idle()
    elsewhere.close()
