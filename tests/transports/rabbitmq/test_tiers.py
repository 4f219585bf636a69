"""Two hundred failing messages through three tiers: in time, to one subscription, and healed."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager
from statistics import median

import pytest
from django.db import transaction

from django_eventbus import publish, transports
from django_eventbus.events.message import Message, uuid7
from django_eventbus.models import Attempt, DeadLetter, InboxRecord
from django_eventbus.redrive.letters import redrive
from django_eventbus.subscriptions.queue_specs import QueueSpec
from django_eventbus.transports.contract import Confirmed, Outgoing, ToTier
from tests.end_to_end.oracle import is_at_rest
from tests.shop.models import Effect
from tests.support.helpers import eventually

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgres,
    pytest.mark.rabbitmq,
]

NUMBER = 200
DELAYS = [0.3, 0.6, 0.9]


@pytest.fixture
def points(tmp_path):
    """Where the workers write down what they come past."""
    return tmp_path / "points"


@pytest.fixture
def workers(manage, amqp, settings, points):
    amqp.settings["RETRY_DELAYS"] = DELAYS
    settings.EVENTBUS = {**settings.EVENTBUS, **amqp.settings}
    options = {"env": amqp.environment, "point_log": points}
    running = [manage("consume_events", "--with-relay", **options) for _ in range(2)]
    for worker in running:
        worker.wait_for("Consuming")
    return running


def test_failing_messages_climb_the_tiers_alone_and_a_re_drive_heals_them(
    workers, amqp, points, tmp_path
):
    fixed = tmp_path / "fixed"
    with listening(amqp) as heard:
        ids = publish_all(fixed)
        eventually(lambda: DeadLetter.objects.count() == NUMBER and is_at_rest(), timeout=60)

        assert_each_has_its_history(ids)
        assert_nobody_else_was_bothered(ids)
        # Whoever else is bound to the exchange has seen each event once, and no retry of it.
        assert heard() == sorted(ids)
    # Each was delivered to both queues, and to the failing one three times more.
    eventually(lambda: settled(points) == NUMBER * (2 + len(DELAYS)))
    fixed.touch()
    redrive(list(DeadLetter.objects.values_list("pk", flat=True)), by="tester", using="default")

    healed = DeadLetter.objects.filter(state="healed")
    eventually(lambda: healed.count() == NUMBER, timeout=60)
    assert effects() == {(event, name): 1 for event in ids for name in NAMES}
    for worker in workers:
        worker.terminate()
    assert [worker.wait() for worker in workers] == [0, 0]


NAMES = ("shop.climb", "shop.sibling", "shop.neighbour")


@contextmanager
def listening(amqp):
    """Bind a queue to everything; yield what returns the ids of what came, and leaves none."""
    with amqp.channel() as channel:
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.queue_bind(queue, f"{amqp.namespace}.events", "#")

        def heard():
            found = iter(lambda: channel.basic_get(queue, auto_ack=True), (None, None, None))
            return sorted(properties.message_id for _, properties, _ in found)

        yield heard


def settled(points):
    """Return how many deliveries were acked."""
    return points.read_text().split().count("eventbus.consumer.acked")


def publish_all(fixed):
    with transaction.atomic():
        return [str(publish("climb.up", {"fixed": str(fixed)})) for _ in range(NUMBER)]


def assert_each_has_its_history(ids):
    attempts = Counter(Attempt.objects.values_list("message_id", "subscription", "attempt"))
    assert attempts == {(event, "shop.climb", number): 1 for event in ids for number in range(1, 5)}
    letters = DeadLetter.objects.values_list("message_id", "subscription", "kind", "attempts")
    assert sorted(letters) == [(event, "shop.climb", "failed", 4) for event in sorted(ids)]


def assert_nobody_else_was_bothered(ids):
    assert effects() == {(event, name): 1 for event in ids for name in NAMES[1:]}
    others = InboxRecord.objects.exclude(subscription="shop.climb")
    assert set(others.values_list("state", "attempt", "started")) == {("handled", 1, 0)}


def effects():
    return Counter(Effect.objects.values_list("event_id", "subscription"))


def test_a_tier_returns_a_message_within_a_second_of_its_time(amqp):
    transport = transports.connect(amqp.url)
    spec = QueueSpec(
        name=amqp.queue(), exchange=f"{amqp.namespace}.events", patterns=(), delays=DELAYS
    )
    transport.declare([spec])
    amqp.settings["RETRY_DELAYS"] = DELAYS
    publisher = transport.publisher()
    subscriber = transport.subscriber([spec.name], prefetch=50)
    assert subscriber.receive(0) is None

    # Promised for an idle broker, which this one is not while other tests run: the best of three.
    tries = [latest(returned_late(spec.name, publisher, subscriber))]
    while tries[-1] >= 1 and len(tries) < 3:
        tries.append(latest(returned_late(spec.name, publisher, subscriber)))
    publisher.close()
    subscriber.close()

    assert min(tries) < 1, tries


def latest(late):
    print(f"late by: median {median(late):.3f} s, most {max(late):.3f} s")
    return max(late)


def returned_late(queue, publisher, subscriber):
    """Send messages through the tiers; return by how much later than due each came back."""
    due = {}
    for delay in DELAYS:
        sent = [copy(queue, delay) for _ in range(NUMBER)]
        began = time.monotonic()
        assert set(publisher.publish(sent)) == {Confirmed()}
        due |= {each.message.id: (began + delay, time.monotonic() + delay) for each in sent}
    late = list(lateness(subscriber, due))
    assert len(late) == len(due)
    return late


def copy(queue, delay):
    message = Message(id=str(uuid7()), type="climb.up", body=b"{}")
    return Outgoing(address=ToTier(queue=queue, delay=delay), message=message)


def lateness(subscriber, due):
    """Yield by how much later than it was due each message comes; never before."""
    waiting = dict(due)
    while waiting and (delivery := subscriber.receive(20)):
        now = time.monotonic()
        delivery.ack()
        earliest, latest = waiting.pop(delivery.message.id)
        # The broker's clock has milliseconds.
        assert now > earliest - 0.01
        yield max(now - latest, 0)
