"""Workers say that they live and what they have done, and nothing of it is in anybody's way."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from uuid import UUID

import pytest
from django.utils import timezone

from django_eventbus import GiveUp, Meta, Skip, publish, signals
from django_eventbus.conf import conf
from django_eventbus.consumer.consumer import Consumer
from django_eventbus.events.message import uuid7
from django_eventbus.exceptions import BrokerUnavailable
from django_eventbus.models import Outage, Queue, Throughput, Worker
from django_eventbus.models.monitoring import SILENCE
from django_eventbus.monitoring.heartbeat import Heartbeat, ThroughputSink, this_process
from django_eventbus.monitoring.queue_levels import QueueLevels
from django_eventbus.observability.metric_names import OUTCOMES
from django_eventbus.outages import OutageWatch
from django_eventbus.outbox.relay import Relay
from django_eventbus.subscriptions.queue_specs import queue_specs
from tests.end_to_end.oracle import FAST
from tests.support.bus import table_away
from tests.support.helpers import eventually

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]

EVERY = 0.05
HANDLED = (OUTCOMES, ("shop-tests", "q", "charge", "order.placed", "handled", "first"), 1)


def announce_handled() -> None:
    meta = Meta(id="1", type="order.placed", queue="q", subscription="charge")
    heard = signals.event_handled.send_robust(Consumer, meta=meta, seconds=0.1, size=2)
    assert [error for _, error in heard if error] == []


def worker(**changes) -> Worker:
    row = this_process(Worker.Kind.CONSUMER, ["shop.tests"])
    for name, value in changes.items():
        setattr(row, name, value)
    return row


def counted() -> dict[str, int]:
    """Return the sums of all minutes."""
    since = timezone.now() - timedelta(days=1)
    minutes = Throughput.objects.by_minute(since).values()
    return {
        name: sum(each[name] for each in minutes) for name in ("published", "handled", "parked")
    }


def test_a_worker_is_seen_while_it_lives_and_gone_after_a_clean_exit(manage):
    consumer = manage("consume_events", "--queue", "counts", env=FAST)
    row = eventually(Worker.objects.first)

    assert (row.kind, row.pid, row.queues) == ("consumer", consumer.pid, [conf.queue("counts")])
    assert row.service == "shop-tests"
    consumer.wait_for("Consuming")
    consumer.terminate()
    assert consumer.wait() == 0
    assert not Worker.objects.exists()


def test_a_worker_that_was_killed_is_dead_after_six_missed_heartbeats(manage):
    relay = manage("relay_events", env=FAST)
    row = eventually(Worker.objects.first)

    relay.kill()

    now = timezone.now()
    assert Worker.objects.get() == row
    assert list(Worker.objects.live(now)) == [row]
    assert list(Worker.objects.live(now + SILENCE + timedelta(seconds=5))) == []


def test_what_a_worker_did_is_counted_by_the_minute(manage):
    for _ in range(7):
        publish("count.up", {})
    publish("act.now", {"do": "give up"})

    ended = manage.run("consume_events", "--with-relay", "--burst", env=FAST)

    assert ended.returncode == 0, ended.output
    assert counted() == {"published": 8, "handled": 8, "parked": 1}


def test_counts_that_are_written_twice_are_counted_once():
    beat = Heartbeat(worker())
    with beat.recording():
        for _ in range(3):
            announce_handled()
        beat.beat()
        announce_handled()

        beat.beat()
        beat.beat()

    assert counted()["handled"] == 4


def test_nothing_is_counted_in_a_process_without_a_heartbeat():
    beat = Heartbeat(worker())
    with beat.recording():
        pass

    announce_handled()

    assert beat.throughput.minutes() == {}


def test_many_threads_count_without_losing_any():
    sink = ThroughputSink()
    threads = [
        threading.Thread(target=lambda: [sink.write([HANDLED]) for _ in range(2000)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(each["handled"] for each in sink.minutes().values()) == 8000


def test_only_what_the_table_has_a_column_for_is_counted(bus):
    beat = Heartbeat(worker())
    errors = [ValueError("no"), Skip("never mind"), GiveUp("no")]

    @bus.subscribe("order.placed", name="charge", retry=["1s"])
    def charge(event):
        if errors:
            raise errors.pop(0)

    with beat.recording():
        for _ in range(4):
            bus.put(id=str(uuid7()))
            bus.consume()

    counts = sum(map(Counter, beat.throughput.minutes().values()), Counter())
    assert counts == {"retried": 1, "parked": 1, "handled": 1}


def test_minutes_that_are_past_and_written_are_forgotten():
    sink = ThroughputSink()
    past = timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=2)
    sink._minutes[past] = Counter(handled=5)
    sink.write([HANDLED])

    sink.forget(sink.minutes())

    assert past not in sink.minutes()
    assert len(sink.minutes()) == 1


def test_what_cannot_be_written_now_is_written_later(caplog):
    beat = Heartbeat(worker(), every=EVERY)
    with beat.beating():
        eventually(Worker.objects.first)
        with table_away("eventbus_throughput"):
            announce_handled()
            eventually(lambda: "The background task 'heartbeat' failed" in caplog.text)

        eventually(lambda: counted()["handled"] == 1)

    assert not Worker.objects.exists()


def test_an_outage_is_recorded_from_its_begin_to_its_end():
    beat = Heartbeat(worker())
    watch = OutageWatch(Relay, "relay")
    with beat.recording():
        watch.begin(BrokerUnavailable("gone", kind="connection"))
        beat.beat()

        row, lasting = Worker.objects.get(), Outage.objects.get()
        assert (row.outage, lasting.kind, lasting.part) == ("connection", "connection", "relay")
        assert row.outage_since == lasting.began_at
        assert lasting.ended_at is None

        watch.end()
        beat.beat()

    ended = Outage.objects.get()
    assert ended.ended_at >= ended.began_at
    assert Worker.objects.get().outage == ""


def test_an_outage_that_ended_before_it_could_be_written_is_written_whole():
    beat = Heartbeat(worker())
    watch = OutageWatch(Relay, "relay")
    with beat.recording():
        watch.begin(BrokerUnavailable("gone"))
        with table_away("eventbus_outage"), pytest.raises(Exception, match="eventbus_outage"):
            beat.beat()
        watch.end()

    beat.beat()

    assert Outage.objects.get().ended_at


def test_the_oldest_worker_without_an_outage_looks_at_the_queues():
    now = timezone.now()
    ailing, first, second = worker(outage="connection"), worker(), worker()
    dead = worker(expected_at=now - SILENCE)
    stranger, relay = worker(service="another"), worker(kind=Worker.Kind.RELAY, id=UUID(int=1))
    for each in (relay, stranger, dead, ailing, first, second):
        each.save(force_insert=True)

    deciders = [
        each for each in (relay, ailing, first, second) if Worker.objects.is_first(each, now)
    ]

    assert deciders == [first]
    assert Worker.objects.is_first(stranger, now)


def test_the_depth_of_a_queue_is_written_down_with_its_time(bus):
    bus.subscribe("order.*", queue="billing")(print)
    bus.put(queue="billing")
    bus.put(queue="billing")

    QueueLevels(bus.transport, queue_specs, worker()).record()

    queue = Queue.objects.get()
    assert (queue.name, queue.messages, queue.in_tiers) == (conf.queue("billing"), 2, 0)
    assert queue.measured_at
    assert not queue.trouble


class Unreachable:
    def levels(self, specs):
        raise BrokerUnavailable("The broker at amqp://nowhere does not answer.")


def test_a_broker_that_cannot_be_reached_leaves_the_last_figures_with_their_age(bus):
    bus.subscribe("order.*", queue="billing")(print)
    bus.put(queue="billing")
    QueueLevels(bus.transport, queue_specs, worker()).record()
    before = Queue.objects.get()

    with pytest.raises(BrokerUnavailable):
        QueueLevels(Unreachable(), queue_specs, worker()).record()

    after = Queue.objects.get()
    assert (after.messages, after.measured_at) == (1, before.measured_at)
    assert after.trouble == "The broker at amqp://nowhere does not answer."
