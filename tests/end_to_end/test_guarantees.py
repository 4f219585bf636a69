"""The promises, each with real processes on a real database."""

from __future__ import annotations

import json
import random
import threading
from collections import defaultdict

import pytest
from django.db import connection, transaction

from django_eventbus import publish
from django_eventbus.conf import conf
from django_eventbus.models import DeadLetter, InboxRecord, OutboxEvent, QueuedMessage
from django_eventbus.outbox.relay import Relay
from django_eventbus.redrive.letters import redrive
from tests.end_to_end.oracle import (
    FAST,
    QUICK,
    assert_exactly_once,
    come_to_rest,
    is_at_rest,
    publish_acts,
)
from tests.end_to_end.private import PrivateProject
from tests.shop.models import Effect, Parent
from tests.support.helpers import eventually

pytestmark = pytest.mark.django_db(transaction=True)


STRICT = {"EVENTBUS_TEST_SETTINGS": json.dumps({**json.loads(QUICK), "START_LIMIT": 3})}


class Abandoned(Exception):
    """Raised to roll a transaction back."""


class Producers:
    """Threads that publish in transactions of their own, half of which roll back."""

    def __init__(self, keys):
        self.keys = keys
        self.committed, self.rolled_back = [], []

    def run(self, threads, each):
        workers = [
            threading.Thread(target=self._work, args=(each, seed)) for seed in range(threads)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(120)

    def _work(self, times, seed):
        chance = random.Random(seed)
        for number in range(times):
            self._publish(chance.choice(self.keys), is_kept=(number + seed) % 2 == 0)
        connection.close()

    def _publish(self, key, is_kept):
        ids = []
        try:
            with transaction.atomic():
                # The promise of order is for producers that serialise on the key first.
                owner = Parent.objects.select_for_update().get(pk=key.pk)
                sequence = int(owner.name) + 1
                Parent.objects.filter(pk=key.pk).update(name=str(sequence))
                ids.append(str(publish("count.up", {"sequence": sequence}, key=key.pk)))
                if not is_kept:
                    raise Abandoned
        except Abandoned:
            self.rolled_back += ids
        else:
            self.committed += ids


@pytest.mark.postgres
def test_rolled_back_is_never_sent_and_committed_is_always_sent(manage):
    producers = Producers([Parent.objects.create(name="0") for _ in range(10)])
    early = OpenTransaction()
    relays = [manage("relay_events", "--batch-size", "17", env=FAST) for _ in range(2)]
    for relay in relays:
        relay.wait_for("Relaying")

    producers.run(threads=10, each=50)
    eventually(lambda: sent() >= set(producers.committed), timeout=60)
    later = OutboxEvent.objects.filter(state="published", id__gt=early.row_id).count()
    early.commit()
    eventually(lambda: early.event_id in sent(), timeout=20)

    assert later == len(producers.committed) == 250
    assert len(producers.rolled_back) == 250
    assert sent() == {*producers.committed, early.event_id}
    assert not OutboxEvent.objects.exclude(state="published").exists()
    assert_order_is_kept_per_key()
    for relay in relays:
        relay.terminate()
    assert [relay.wait() for relay in relays] == [0, 0]


def sent():
    return set(QueuedMessage.objects.values_list("message_id", flat=True))


def assert_order_is_kept_per_key():
    sequences = defaultdict(list)
    for queued in QueuedMessage.objects.order_by("id"):
        message = queued.message()
        sequences[message.text("eventbus-key")].append(eval_sequence(message))
    assert len(sequences) == 11
    for sequence in sequences.values():
        assert sequence == sorted(sequence)


def eval_sequence(message):
    return int(message.body.removeprefix(b'{"sequence":').removesuffix(b"}"))


class OpenTransaction:
    """A transaction that has taken the first id and does not end until told to."""

    def __init__(self):
        self._published, self._go_on = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._published.wait(10)

    def _run(self):
        with transaction.atomic():
            self.event_id = str(publish("count.up", {"sequence": 0}, key="early"))
            self.row_id = OutboxEvent.objects.get(message_id=self.event_id).pk
            self._published.set()
            assert self._go_on.wait(120)
        connection.close()

    def commit(self):
        self._go_on.set()
        self._thread.join(10)


def test_many_events_through_two_workers_are_handled_once_each(manage):
    with transaction.atomic():
        ids = {str(publish("count.up", {"number": number})) for number in range(60)}
    workers = [manage("consume_events", "--with-relay", env=FAST) for _ in range(2)]

    eventually(lambda: is_at_rest() and Effect.objects.count() >= 60, timeout=60)

    assert sorted(Effect.objects.values_list("event_id", flat=True)) == sorted(ids)
    for worker in workers:
        # The other one may have done it all before this one knows of signals.
        worker.wait_for("Consuming")
        worker.terminate()
    assert [worker.wait() for worker in workers] == [0, 0]


def test_a_handler_that_kills_its_process_is_parked_and_the_queue_goes_on(manage, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "START_LIMIT": 3}
    guilty = str(publish("act.now", {"do": "exit"}))
    innocent = {str(publish("act.now", {"do": "ok"})): True for _ in range(6)}

    exits = []
    while not DeadLetter.objects.exists() and len(exits) < 20:
        exits.append(run_until_settled_or_dead(manage))
    worker = manage("consume_events", "--with-relay", env=STRICT)
    worker.wait_for("Consuming")
    come_to_rest()

    letter = DeadLetter.objects.get()
    assert (letter.message_id, letter.kind, letter.subscription) == (
        guilty,
        "start_limit",
        "shop.act",
    )
    assert exits.count(7) == 1 + conf.start_limit
    assert not Effect.objects.filter(event_id=guilty, subscription="shop.act").exists()
    for event in innocent:
        assert Effect.objects.filter(event_id=event).count() == 2
    worker.terminate()
    assert worker.wait() == 0


def run_until_settled_or_dead(manage):
    """Run a worker until it dies or has parked something; return its exit code."""
    worker = manage("consume_events", "--with-relay", env=STRICT, is_measured=False)
    eventually(lambda: not worker.is_running or DeadLetter.objects.exists(), timeout=30)
    if worker.is_running:
        worker.terminate()
    return worker.wait()


@pytest.mark.postgres
def test_25_kills_of_an_innocent_worker_park_nothing(manage):
    chance, published, kills = random.Random(25), 0, 0

    while kills < 25:
        for _ in range(12):
            publish("act.now", {"do": "dawdle"})
            published += 1
        command = ("consume_events", "--with-relay")
        workers = [manage(*command, env=FAST, is_measured=False) for _ in range(2)]
        handled = Effect.objects.count() + 2 * chance.randint(1, 4)
        eventually(lambda: Effect.objects.count() >= handled, interval=0.005)  # noqa: B023
        kills += [worker.kill() for worker in workers].count(-9)
    manage("consume_events", "--with-relay", env=FAST, is_measured=False)
    come_to_rest()

    assert not DeadLetter.objects.exists()
    assert Effect.objects.count() == 2 * published
    assert InboxRecord.objects.exclude(state="handled").count() == 0


def test_sigterm_finishes_the_work_in_hand_and_exits_0(manage, tmp_path):
    began, go_on = tmp_path / "began", tmp_path / "go_on"
    event = str(publish("act.now", {"do": "wait", "began": str(began), "go_on": str(go_on)}))
    worker = manage("consume_events", "--with-relay", env=FAST)
    eventually(began.exists, timeout=20)

    worker.terminate()
    go_on.touch()

    assert worker.wait() == 0
    assert Effect.objects.filter(event_id=event, subscription="shop.act").count() == 1
    assert InboxRecord.objects.get(subscription="shop.act").state == "handled"


def test_a_second_signal_stops_at_once_and_the_message_comes_again(manage, tmp_path):
    began, go_on = tmp_path / "began", tmp_path / "go_on"
    event = str(publish("act.now", {"do": "wait", "began": str(began), "go_on": str(go_on)}))
    worker = manage("consume_events", "--with-relay", env=FAST)
    eventually(began.exists, timeout=20)

    worker.interrupt()
    worker.terminate()

    assert worker.wait(5) in (128 + 15, 128 + 2)
    go_on.touch()
    manage("consume_events", env=FAST)
    come_to_rest()
    assert Effect.objects.filter(event_id=event).count() == 2


def test_a_re_drive_reaches_only_the_subscription_that_failed_and_heals_it(manage):
    events = publish_acts()
    worker = manage("consume_events", "--with-relay", env=FAST)
    come_to_rest()
    assert_exactly_once(events)
    letter = DeadLetter.objects.get(kind="failed")
    letter.body = bytes(letter.body).replace(b'"fail"', b'"ok"')
    letter.save()
    redrive([letter.pk], by="tester", using="default")
    eventually(lambda: DeadLetter.objects.get(pk=letter.pk).state == "healed", timeout=20)

    effects = Effect.objects.filter(event_id=letter.message_id)
    assert sorted(effects.values_list("subscription", flat=True)) == ["shop.act", "shop.witness"]
    worker.terminate()


@pytest.mark.postgres
def test_postgresql_restarted_under_load_loses_nothing_and_burns_no_attempt(
    manage, private_postgres
):
    project = PrivateProject(manage, private_postgres)
    ids = project.publish(150)
    worker = project.start("consume_events", "--with-relay")
    eventually(lambda: project.count("shop_effect") > 10, timeout=30)

    for _ in range(2):
        private_postgres.stop(mode="immediate")
        worker.wait_for("Outage")
        private_postgres.start()
        done = project.count("shop_effect")
        eventually(lambda done=done: project.count("shop_effect") > done, timeout=30)
    eventually(lambda: project.count("shop_effect") >= len(ids), timeout=60)
    eventually(lambda: project.count("eventbus_queuedmessage") == 0, timeout=20)

    assert project.effects() == sorted(ids)
    assert project.count("eventbus_attempt") == project.count("eventbus_deadletter") == 0
    assert "The outage is over" in worker.output
    worker.terminate()
    assert worker.wait() == 0


def test_two_relays_take_turns(bus):
    bus.subscribe("order.*")(lambda event: None)
    ids = [str(publish("order.placed", {})) for _ in range(20)]
    relays = [Relay(bus.publisher, "default", batch_size=3) for _ in range(2)]

    for number in range(20):
        relays[number % 2].relay_once()

    in_order = QueuedMessage.objects.order_by("id").values_list("message_id", flat=True)
    assert list(in_order) == ids
