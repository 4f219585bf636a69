"""Events for later: held until due, and taken back until then."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.db import connection, connections, transaction
from django.utils import timezone

from django_eventbus import cancel, publish, publish_many
from django_eventbus.exceptions import InvalidEvent, RetryLater
from django_eventbus.models import OutboxEvent, QueuedMessage
from tests.shop.models import Effect
from tests.support.helpers import eventually
from tests.support.tables import table

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]

TOMORROW = timedelta(days=1)


def leave_effect(event):
    Effect.objects.create(event_id=event.meta.id)


def test_an_event_for_a_time_is_held_until_then(bus):
    bus.subscribe("order.*")(leave_effect)
    at = timezone.now() + TOMORROW

    publish("order.placed", at=at)
    publish_many([("order.placed", {}), ("order.placed", {})], at=at)

    assert bus.relay() == 0
    assert set(OutboxEvent.objects.values_list("state", "due_at")) == {("scheduled", at)}
    bus.drain()
    assert Effect.objects.count() == 3


def test_a_time_gone_by_is_now(bus):
    bus.subscribe("order.*")(leave_effect)

    publish("order.placed", at=datetime(2001, 1, 1, tzinfo=UTC))

    assert bus.relay() == 1


@table("at", [datetime(2030, 1, 1), "tomorrow", 5])
def test_a_time_without_a_zone_is_refused(at):
    with pytest.raises(InvalidEvent, match=r"at: .* is not a datetime with a time zone"):
        publish("order.placed", at=at)


def test_a_delay_and_a_time_at_once_are_refused():
    with pytest.raises(InvalidEvent, match="delay and at are both given"):
        publish("order.placed", delay="1m", at=timezone.now())


def test_what_is_cancelled_in_time_is_never_sent(bus):
    bus.subscribe("order.*")(leave_effect)
    event = publish("order.placed", delay="1d")

    assert cancel(event)
    assert not cancel(event)

    bus.drain()
    assert OutboxEvent.objects.get().state == "cancelled"
    assert not Effect.objects.exists()


def test_a_cancellation_that_is_rolled_back_has_not_happened(bus):
    event = publish("order.placed", delay="1d")

    with transaction.atomic():
        assert cancel(str(event))
        transaction.set_rollback(True)

    assert OutboxEvent.objects.get().state == "scheduled"


def test_what_is_due_or_unknown_cannot_be_cancelled(bus):
    bus.subscribe("order.*")(leave_effect)

    assert not cancel(publish("order.placed"))
    assert not cancel(uuid4())
    assert bus.relay() == 1


def test_a_retry_that_waits_in_the_outbox_is_not_cancelled_with_its_event(bus):
    @bus.subscribe("order.*")
    def later(event):
        if event.meta.attempt == 1:
            raise RetryLater(after="1h")
        leave_effect(event)

    event = publish("order.placed")
    bus.relay()
    bus.consume()

    assert not cancel(event)
    bus.drain()
    assert Effect.objects.count() == 1


def test_a_held_event_cannot_be_cancelled_since_some_queues_may_have_it(bus):
    event = publish("order.placed")
    OutboxEvent.objects.update(state="scheduled", error="a queue is full", due_at=timezone.now())

    assert not cancel(event)


def test_cancelled_and_sent_exclude_each_other_while_a_relay_is_at_work(bus):
    bus.subscribe("order.*")(leave_effect)
    due = timezone.now() + timedelta(milliseconds=300)
    events = publish_many([("order.placed", {})] * 60, at=due)
    answers = {}

    def take_back():
        try:
            for event in events:
                answers[str(event)] = cancel(event)
        finally:
            connections.close_all()

    thread = threading.Thread(target=take_back)
    eventually(lambda: timezone.now() > due, interval=0.001)
    thread.start()
    while thread.is_alive() or bus.relayer.has_ready_rows():
        bus.relay()
    thread.join()

    sent = set(QueuedMessage.objects.values_list("message_id", flat=True))
    assert sent == {event for event, was_in_time in answers.items() if not was_in_time}
    assert len(answers) == 60


@contextmanager
def cancelling(event):
    """Cancel *event* in a transaction that stays open meanwhile."""
    is_cancelled, may_end = threading.Event(), threading.Event()

    def take_back():
        try:
            with transaction.atomic():
                cancel(event)
                is_cancelled.set()
                may_end.wait(20)
        finally:
            connections.close_all()

    thread = threading.Thread(target=take_back)
    thread.start()
    assert is_cancelled.wait(10)
    try:
        yield
    finally:
        may_end.set()
        thread.join()


@pytest.mark.postgres
def test_a_cancellation_that_is_not_committed_yet_holds_up_no_other_event(bus):
    bus.subscribe("order.*")(leave_effect)
    due = timezone.now() + timedelta(milliseconds=200)
    first, other = publish_many([("order.placed", {})] * 2, at=due)
    eventually(lambda: timezone.now() > due, interval=0.01)

    with cancelling(first):
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '5s'")
        assert bus.relay() == 1
        connection.close()

    assert bus.relay() == 0
    assert QueuedMessage.objects.get().message_id == str(other)
