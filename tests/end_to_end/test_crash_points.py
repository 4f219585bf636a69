"""kill -9 at every named point between two steps, then restart: exactly once in effect."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

import django_eventbus
from django_eventbus import publish
from django_eventbus.models import DeadLetter, InboxMark, InboxRecord, OutboxEvent
from tests.end_to_end.oracle import (
    FAST,
    assert_exactly_once,
    come_to_rest,
    is_at_rest,
    publish_acts,
)
from tests.shop.models import Effect
from tests.support.helpers import eventually

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]

RELAY = [
    "eventbus.relay.claimed",
    "eventbus.database.published",
    "eventbus.relay.confirmed",
    "eventbus.relay.marked",
    "eventbus.relay.committed",
]
CONSUMER = [
    "eventbus.database.leased",
    "eventbus.inbox.called",
    "eventbus.inbox.committed",
    "eventbus.inbox.failed",
    "eventbus.inbox.recorded",
    "eventbus.consumer.copied",
    "eventbus.consumer.acked",
]
REDELIVERED = ["eventbus.inbox.started"]
REDRIVE = ["eventbus.redrive.changed", "eventbus.redrive.written"]
#: Only a broker has a DLQ: killed in tests/transports/rabbitmq.
DLQ = [
    "eventbus.collector.recorded",
    "eventbus.parking.published",
    "eventbus.broker_redrive.published",
    "eventbus.errands.worked",
]
#: Only a broker confirms: killed in tests/end_to_end/test_rabbitmq.py.
CONFIRMS = ["eventbus.rabbitmq.taken"]
#: Between the row that says that a process lives and its counts.
HEARTBEAT = ["eventbus.heartbeat.seen"]
#: Killed in the tests of pings, of ordered queues and of the last resort.
ELSEWHERE = [
    "eventbus.pings.answered",
    "eventbus.ordering.waiting",
    "eventbus.last_resort.parked",
]
PRUNING = ["eventbus.pruning.marked", "eventbus.pruning.deleted"]
#: Killed in tests/end_to_end/test_plans.py.
PLANS = [
    "eventbus.plans.frozen",
    "eventbus.plan_steps.sent",
    "eventbus.plan_steps.written",
    "eventbus.plan_steps.committed",
]

KILLED = -9


def worker(manage, *, kill_at=""):
    return manage("consume_events", "--with-relay", env=FAST, kill_at=kill_at, is_measured=False)


def test_every_point_in_the_code_is_killed_here():
    package = Path(django_eventbus.__file__).parent
    sources = "".join(path.read_text() for path in package.rglob("*.py"))

    named = set(re.findall(r'sys\.audit\("([^"]+)"\)', sources))

    workers = {*RELAY, *CONSUMER, *REDELIVERED, *CONFIRMS, *HEARTBEAT}
    assert named == {*workers, *REDRIVE, *DLQ, *PRUNING, *PLANS, *ELSEWHERE}


# Later ones: the second copy of a retry, another ack, another record.
RETRIED = ["eventbus.consumer.copied:2", "eventbus.consumer.acked:2", "eventbus.inbox.recorded:3"]


@pytest.mark.parametrize("point", [*RELAY, *CONSUMER, *RETRIED, *HEARTBEAT])
def test_a_kill_between_two_steps_leaves_one_effect_or_one_dead_letter(manage, point):
    events = publish_acts()

    assert worker(manage, kill_at=point).wait() == KILLED
    survivor = worker(manage)
    come_to_rest()
    survivor.terminate()

    assert survivor.wait() == 0
    assert_exactly_once(events)


@pytest.mark.postgres
@pytest.mark.parametrize("point", ["claimed:2", "confirmed:2", "marked"])
def test_a_kill_between_two_batches_of_a_transaction_is_harmless(manage, point):
    """The first is marked and not committed while the second is under way."""
    events = publish_acts()
    settings = {**json.loads(FAST["EVENTBUS_TEST_SETTINGS"]), "BATCH_SIZE": 2}
    env = {"EVENTBUS_TEST_SETTINGS": json.dumps(settings)}
    command = ("consume_events", "--with-relay")

    killed = manage(*command, env=env, kill_at=f"eventbus.relay.{point}", is_measured=False)
    assert killed.wait() == KILLED
    manage(*command, env=env, is_measured=False)
    come_to_rest()

    assert_exactly_once(events)


def test_a_kill_after_a_start_was_counted_is_harmless(manage):
    events = publish_acts()
    worker(manage, kill_at="eventbus.database.leased").wait()

    assert worker(manage, kill_at="eventbus.inbox.started").wait() == KILLED
    worker(manage)
    come_to_rest()

    assert_exactly_once(events)


def test_a_worker_killed_again_and_again_while_it_retries_counts_each_attempt_once(manage):
    events = publish_acts()

    # Each leaves a message unsettled, so that the next is sure to come to its own point.
    for point in ("inbox.recorded", "consumer.copied", "consumer.copied", "consumer.acked"):
        assert worker(manage, kill_at=f"eventbus.{point}").wait() == KILLED
    worker(manage)
    come_to_rest()

    assert_exactly_once(events)
    assert DeadLetter.objects.get(kind="failed").attempts == 3


@pytest.mark.parametrize("point", REDRIVE)
def test_a_kill_while_re_driving_moves_all_or_nothing(manage, point):
    event = str(publish("act.now", {"do": "give up"}))
    consumer = worker(manage)
    come_to_rest()
    letter = DeadLetter.objects.get()
    script = f"from django_eventbus.redrive import redrive; redrive([{letter.pk}], by='me', using='default')"

    assert manage("shell", "-c", script, kill_at=point).wait() == KILLED
    assert DeadLetter.objects.get().state == "open"
    assert not OutboxEvent.objects.filter(queue=letter.queue).exists()

    assert manage("shell", "-c", script).wait() == 0
    eventually(lambda: is_at_rest() and DeadLetter.objects.get().state == "open", timeout=20)
    consumer.terminate()
    assert (DeadLetter.objects.get().round, InboxRecord.objects.get(state="parked").round) == (1, 1)
    assert not Effect.objects.filter(event_id=event, subscription="shop.act").exists()


@pytest.mark.parametrize("point", PRUNING)
def test_a_kill_while_pruning_forgets_nothing_that_the_mark_does_not_cover(manage, point):
    old = timezone.now() - timedelta(days=9)
    for number in range(3):
        InboxRecord.objects.create(
            subscription="x", message_id=str(number), state="handled", sent_at=old, settled_at=old
        )

    killed = manage("prune_events", "--older-than", "7d", kill_at=point)

    assert killed.wait() == KILLED
    assert InboxMark.objects.get().forgets_before > old
    assert manage("prune_events", "--older-than", "7d").wait() == 0
    assert not InboxRecord.objects.exists()
