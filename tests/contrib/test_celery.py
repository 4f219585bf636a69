"""The schedule for Celery beat, and the tasks in it, each called by itself."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

import pytest
from django.utils import timezone

from django_eventbus import publish, signals
from django_eventbus.contrib import celery_runs
from django_eventbus.contrib.celery_runs import RunHeartbeat
from django_eventbus.exceptions import BrokerUnavailable
from django_eventbus.models import DeadLetter, OutboxEvent, RelayLease, Throughput, Worker
from django_eventbus.monitoring.problems import problems
from django_eventbus.monitoring.status import read_status
from django_eventbus.outbox.relay import Relay
from tests.shop.models import Effect
from tests.support.tables import table

celery = pytest.importorskip("django_eventbus.contrib.celery", exc_type=ImportError)


def leave_effect(event):
    Effect.objects.create(event_id=event.meta.id, subscription=event.meta.subscription)


def test_the_schedule_names_the_tasks_with_whole_seconds_and_an_end():
    schedule = celery.beat_schedule(relay="2s", consume=timedelta(minutes=1), older_than="7d")

    assert schedule == {
        "eventbus-relay": {
            "task": "django_eventbus.relay",
            "schedule": timedelta(seconds=2),
            "kwargs": {"using": "default", "every": 2.0},
            "options": {"expires": 2},
        },
        "eventbus-consume": {
            "task": "django_eventbus.consume",
            "schedule": timedelta(minutes=1),
            "kwargs": {"every": 60.0},
            "options": {"expires": 60},
        },
        "eventbus-prune": {
            "task": "django_eventbus.prune",
            "schedule": timedelta(days=1),
            "kwargs": {"older_than": 604800.0, "using": "default"},
            "options": {"expires": 86400},
        },
    }
    assert {each["task"] for each in schedule.values()} == {
        each.name for each in (celery.relay, celery.consume, celery.prune)
    }


def test_a_task_is_left_out_with_none():
    assert list(celery.beat_schedule(consume=None, prune=None)) == ["eventbus-relay"]


@table("every", ["500ms", "1500ms", 0, 0.5])
def test_a_part_of_a_second_is_refused(every):
    with pytest.raises(ValueError, match=r"relay=.* is not a whole number of seconds"):
        celery.beat_schedule(relay=every)


def test_the_tasks_relay_and_consume_what_is_due(bus):
    bus.subscribe("order.placed", name="charge")(leave_effect)
    publish("order.placed")

    assert celery.relay() == 1
    celery.consume()
    assert celery.relay() == 0

    assert Effect.objects.count() == 1
    assert OutboxEvent.objects.get().state == "published"


def test_turns_are_on_the_dashboard_and_missed_when_they_no_longer_come(bus, monkeypatch):
    monkeypatch.setattr(celery_runs, "_throttles", {})
    monkeypatch.setattr(celery_runs, "_heartbeats", {})
    bus.subscribe("order.placed", name="charge")(leave_effect)
    publish("order.placed")

    for _ in range(2):
        celery.relay(every=20)
        celery.consume(every=20)

    now = timezone.now()
    found = read_status()
    assert sorted(worker.kind for worker in found.live) == ["consumer", "relay"]
    assert [queue.consumers for queue in found.queues] == [1]
    assert found.queues[0].is_measured
    assert sum(span.handled for span in found.hour) == 1
    assert "unconsumed" not in {each.code for each in problems(found)}
    assert Worker.objects.live(now + timedelta(seconds=55)).count() == 2
    assert not Worker.objects.live(now + timedelta(seconds=61)).exists()


def test_a_turn_is_expected_for_as_long_as_it_may_last(bus):
    lasting = []
    bus.subscribe("order.placed", name="charge")(
        lambda event: lasting.append(Worker.objects.get(kind="consumer").expected_at)
    )
    publish("order.placed")
    celery.relay()

    celery.consume(within=600, every=5)

    assert lasting[0] > timezone.now() + timedelta(seconds=590)
    assert Worker.objects.get(kind="consumer").expected_at < timezone.now() + timedelta(seconds=31)


def test_processes_that_take_turns_share_a_row_and_add_their_counts(bus):
    first, second = (RunHeartbeat("relay", []) for _ in range(2))
    for heartbeat in (first, second):
        with heartbeat.run(within=1, every=1):
            signals.event_published.send_robust(Relay, row=OutboxEvent(type="order.placed"))

    assert Worker.objects.count() == 1
    assert sum(Throughput.objects.values_list("published", flat=True)) == 2


def test_a_turn_takes_an_ordered_queue_in_its_order_beside_the_others(bus):
    seen = []

    def handle(event):
        seen.append((event.payload, event.meta.attempt))
        if event.payload == 1 and event.meta.attempt == 1:
            raise ValueError("not yet")

    bus.subscribe("order.*", name="ordered", queue="a", ordered=True, retry=["10ms"])(handle)
    bus.subscribe("order.*", name="charge")(leave_effect)
    for number in (1, 2):
        publish("order.placed", number)

    celery.relay()
    celery.consume()

    assert seen == [(1, 1), (1, 2), (2, 1)]
    assert Effect.objects.count() == 2


def test_a_turn_parks_what_nobody_takes_from_an_ordered_queue(bus):
    bus.subscribe("order.*", name="ordered", queue="a", ordered=True, retry=["10ms"])(print)
    bus.put(queue="a", type="other.happened", routing_key="other.happened")

    celery.consume(within=5)

    assert (bus.letter.kind, bus.letter.queue) == ("unmatched", "shop.shop-tests.a")


def test_a_turn_of_the_relay_opens_redrives_that_went_unanswered(bus):
    @bus.subscribe("order.placed", name="charge", retry=[])
    def charge(event):
        raise ValueError("no")

    bus.put()
    bus.consume()
    long_ago = timezone.now() - timedelta(days=1)
    DeadLetter.objects.update(state="redriving", redriven_at=long_ago)

    celery.relay()

    assert bus.letter.state == "unknown"


def test_the_task_prunes_what_is_older(bus):
    bus.subscribe("order.placed", name="charge")(leave_effect)
    publish("order.placed")
    bus.drain()
    OutboxEvent.objects.update(published_at=timezone.now() - timedelta(days=8))

    assert celery.prune(older_than="9d")["outbox events"] == 0
    assert celery.prune(older_than="7d")["outbox events"] == 1


def test_what_may_be_under_way_is_not_pruned(db):
    with pytest.raises(ValueError, match="at least"):
        celery.prune(older_than="59s")


@pytest.mark.sqlite
def test_a_relay_beside_another_does_nothing_and_does_not_wait(bus):
    bus.subscribe("order.placed", name="charge")(leave_effect)
    publish("order.placed")
    RelayLease.objects.acquire(bus.relayer.holder, 60)

    assert celery.relay() == 0
    assert OutboxEvent.objects.get().state == "ready"


def test_a_turn_ends_when_its_time_is_up(bus):
    @bus.subscribe("order.placed", name="echo")
    def echo(event):
        publish("order.placed")
        celery.relay(within=0)

    publish("order.placed")
    assert celery.relay(within=0) == 1

    celery.consume(within=0.2)

    assert Effect.objects.count() == 0
    assert OutboxEvent.objects.filter(state="published").count() > 1


def test_an_outage_ends_the_turn_and_is_told_once(bus, settings, monkeypatch):
    monkeypatch.setattr(celery_runs, "_watch", celery_runs.OutageWatch(Relay, "relay"))
    unreachable = "amqp://guest:guest@127.0.0.1:1/"
    settings.EVENTBUS = {
        **settings.EVENTBUS,
        "BROKER_URL": unreachable,
        "BROKER_OPTIONS": {"CONNECT_TIMEOUT": "1s"},
    }
    bus.subscribe("order.placed", name="charge")
    heard = []

    def hear(over, error, **kwargs):
        heard.append((over, type(error)))

    signals.outage.connect(hear)
    publish("order.placed")
    try:
        assert celery.relay() == 0
        assert celery.relay() == 0
        settings.EVENTBUS = {**settings.EVENTBUS, "BROKER_URL": "database://"}
        celery.relay()
    finally:
        signals.outage.disconnect(hear)

    assert heard == [(False, BrokerUnavailable), (True, type(None))]


def test_a_service_without_subscriptions_has_nothing_to_consume(bus):
    celery.consume()


def test_the_module_is_imported_before_django_has_apps():
    script = (
        "import os; os.environ.pop('DJANGO_SETTINGS_MODULE', None)\n"
        "import sys, django_eventbus.contrib.celery\n"
        "print('django_eventbus.models' in sys.modules)"
    )

    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )

    assert ended.stdout.strip() == "False"
