"""Ratatoskr: quorum queues, a retry queue for each, a DLQ exchange: sentence by sentence."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import call_command

from django_eventbus import GiveUp, publish, subscribe
from django_eventbus.models import DeadLetter, InboxRecord, OutboxEvent
from tests.shop.models import Effect
from tests.support.buses import LAYOUTS
from tests.support.helpers import eventually
from tests.support.own_broker import OTHER_WORKER

LAYOUT = LAYOUTS["ratatoskr"]
QUEUE, DLQ = "my-service.events", "my-service.events.dlq"
#: MaxRetries of the recipe.
RETRIES = 3


def leave_effect(event):
    Effect.objects.create(event_id=event.meta.id, subscription="handler")


def failing(*, times):
    """Return a handler that leaves an effect each time, and fails *times* times."""
    seen = []

    def handler(event):
        leave_effect(event)
        seen.append((event.meta.attempt, event.meta.headers.get("x-retry-count", 0)))
        if event.meta.attempt <= times:
            raise ConnectionError("the other side is away")

    handler.seen = seen
    return handler


def test_1_normal_processing_acks_and_removes_from_the_queue(joined):
    joined.subscribe(leave_effect)

    event = str(publish("order.placed", {}))
    joined.settle()

    assert (joined.effects, joined.depth(QUEUE)) == ([event], 0)


def test_2_retry_waits_in_the_retry_queue_and_x_retry_count_tracks_attempts(joined):
    handler = failing(times=2)
    joined.subscribe(handler)

    event = str(publish("order.placed", {}))
    joined.settle()

    assert joined.effects == [event]
    assert handler.seen == [(1, 0), (2, 1), (3, 2)]
    assert joined.seen_by(LAYOUT.bystander) == [(event, 0)]


@pytest.mark.rabbitmq
@OTHER_WORKER
def test_2_upon_expiration_the_retry_queue_dead_letters_back_to_the_main_queue(on_rabbitmq):
    deaths = []

    def handler(event):
        deaths.extend(event.meta.headers.get("x-death", []))
        if event.meta.attempt == 1:
            raise ConnectionError("the other side is away")

    on_rabbitmq.subscribe(handler)
    on_rabbitmq.put("order.placed")

    on_rabbitmq.settle()

    (death,) = deaths
    assert (death["queue"], death["reason"]) == (f"{QUEUE}.retry", "expired")


def test_3_a_permanent_error_is_dead_lettered_at_once(joined):
    def handler(event):
        raise GiveUp("validation failure")

    joined.subscribe(handler)
    joined.put("order.placed")

    joined.settle()

    assert (joined.letter.kind, joined.attempts) == ("given_up", 1)
    assert joined.depth(QUEUE) == 0


def test_3_exhausted_max_retries_are_dead_lettered(joined):
    joined.subscribe(failing(times=99))
    joined.put("order.placed")

    joined.settle()

    assert (joined.letter.kind, joined.attempts) == ("failed", RETRIES + 1)


@pytest.mark.rabbitmq
@OTHER_WORKER
def test_3_the_message_is_published_to_the_dlq_exchange_and_then_acked(on_rabbitmq):
    def handler(event):
        raise GiveUp("validation failure")

    on_rabbitmq.configure(PARK_TO="broker", COLLECT_DLQ=False)
    on_rabbitmq.subscribe(handler)
    event = on_rabbitmq.put("order.placed", b'{"n":1}')

    on_rabbitmq.settle()

    ((properties, body),) = on_rabbitmq.taken(DLQ)
    assert (properties.message_id, body) == (event, b'{"n":1}')
    assert on_rabbitmq.depth(QUEUE) == 0


def test_all_queues_are_quorum_queues_by_default(no_subscriptions, settings, rabbitmq_url):
    settings.EVENTBUS = {"SERVICE": "my-service", "BROKER_URL": rabbitmq_url}
    subscribe("order.*", name="handler")(leave_effect)
    out = StringIO()

    call_command("eventbus_topology", "--definitions", stdout=out)

    queues = json.loads(out.getvalue())["queues"]
    assert {each["arguments"]["x-queue-type"] for each in queues} == {"quorum"}
    assert len(queues) == 2 + len(settings.EVENTBUS.get("RETRY_DELAYS", ["30s", "5m", "30m"]))


@pytest.mark.rabbitmq
@OTHER_WORKER
def test_messages_are_only_considered_sent_when_the_broker_confirms_receipt(on_rabbitmq):
    on_rabbitmq.subscribe(leave_effect)
    channel = on_rabbitmq.hands.channel
    limits = {"x-max-length": 1, "x-overflow": "reject-publish"}
    channel.queue_declare("full", durable=True, arguments=limits)
    channel.queue_bind("full", LAYOUT.exchange, "order.#")
    publish("order.placed", {})
    publish("order.placed", {})

    try:
        on_rabbitmq.work_until(lambda: channel.queue_declare("full", passive=True))
        states = OutboxEvent.objects.order_by("id").values_list("state", flat=True)
        assert list(states) == ["published", "scheduled"]
        channel.queue_delete("full")
        OutboxEvent.objects.filter(state="scheduled").update(due_at="2020-01-01T00:00Z")
        on_rabbitmq.work_until(lambda: set(states.all()) == {"published"})
    finally:
        channel.queue_delete("full")


def test_a_crash_after_processing_but_before_ack_is_absorbed(joined):
    joined.subscribe(leave_effect)
    event = joined.put("order.placed")

    joined.die_before_ack()
    assert joined.effects == [event]
    joined.work_until(lambda: joined.depth(QUEUE) == 0)

    assert joined.effects == [event]


@pytest.mark.rabbitmq
@OTHER_WORKER
def test_a_crash_between_the_dlq_and_the_ack_leaves_no_duplicate_in_effect(on_rabbitmq):
    def handler(event):
        leave_effect(event)
        if not event.meta.round:
            raise GiveUp("not yet")

    on_rabbitmq.configure(PARK_TO="broker", COLLECT_DLQ=False)
    on_rabbitmq.subscribe(handler)
    event = on_rabbitmq.put("order.placed")

    on_rabbitmq.die_at("parking.published")
    on_rabbitmq.settle()
    eventually(lambda: on_rabbitmq.depth(DLQ) == 2)

    call_command("redrive_events", from_broker=QUEUE, yes=True, stdout=StringIO())
    on_rabbitmq.work_until(lambda: on_rabbitmq.depth(QUEUE) == 0 and on_rabbitmq.effects)

    assert on_rabbitmq.effects == [event]
    assert InboxRecord.objects.get().state == "handled"
    assert not DeadLetter.objects.filter(state="open").exists()
