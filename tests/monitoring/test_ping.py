"""eventbus_ping, who answers it, and what system events never reach; on database://."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connections
from django.test import override_settings
from django.utils import timezone

from django_eventbus import Event, publish, subscribe
from django_eventbus.conf import conf
from django_eventbus.events.message import ORIGINAL_ROUTING_KEY, Message
from django_eventbus.events.system import PINGS, answer_in, pong_to
from django_eventbus.exceptions import InvalidEvent
from django_eventbus.models import Binding, DeadLetter, InboxRecord, QueuedMessage
from django_eventbus.subscriptions.queue_specs import queue_specs
from django_eventbus.workers.loops import ConsumerLoop
from tests.end_to_end.oracle import FAST
from tests.support.tables import table


def ping(*options):
    stdout = StringIO()
    call_command("eventbus_ping", *options, stdout=stdout)
    return stdout.getvalue()


@pytest.fixture
def two_queues(bus):
    """Two queues whose subscriptions want everything, and what they were given."""
    seen = []
    bus.subscribe("#", queue="a", name="a")(seen.append)
    bus.subscribe("#", queue="b", name="b")(seen.append)
    return seen


@pytest.fixture
def consuming(bus):
    """Consume queues, in a thread, until the end of the test."""
    stop, threads = threading.Event(), []

    def start(*names):
        queues = [conf.queue(name) for name in names]
        workers = ConsumerLoop(bus.transport, queues, stop, prefetch=1)

        def loop():
            try:
                workers.run()
            finally:
                workers.close()
                connections.close_all()

        threads.append(threading.Thread(target=loop))
        threads[-1].start()

    with override_settings(EVENTBUS={"SERVICE": conf.service, "POLL_INTERVAL": "20ms"}):
        yield start
        stop.set()
        for thread in threads:
            thread.join(20)


def test_every_queue_answers_and_nothing_is_left_behind(two_queues, consuming):
    consuming("a", "b")

    table = ping().splitlines()

    assert table[0].split() == ["QUEUE", "SERVICE", "HOST", "ROUND", "TRIP"]
    assert [line.split()[:2] for line in table[1:]] == [
        [conf.queue("a"), conf.service],
        [conf.queue("b"), conf.service],
    ]
    assert all(line.endswith(" ms") for line in table[1:])
    assert not QueuedMessage.objects.exists()


def test_a_silent_queue_is_named_and_the_command_ends_with_1(two_queues, consuming):
    consuming("a")

    with pytest.raises(CommandError, match=f"No answer within 300ms from {conf.queue('b')}. Start"):
        ping("--timeout", "300ms")


def test_only_the_chosen_queue_must_answer_and_the_others_may(two_queues, consuming):
    consuming("a")

    assert json.loads(ping("--queue", "a", "--json"))[0]["queue"] == conf.queue("a")


def test_the_answers_as_json_have_seconds_and_null_for_the_silent(two_queues, consuming):
    consuming("a")
    stdout = StringIO()

    with pytest.raises(CommandError):
        call_command("eventbus_ping", "--json", "--timeout", "0.3", stdout=stdout)

    first, second = json.loads(stdout.getvalue())
    assert 0 < first.pop("seconds") < 60
    assert first["queue"] == conf.queue("a")
    assert second == {"queue": conf.queue("b"), "service": "", "host": "", "seconds": None}


def test_a_queue_that_is_not_bound_is_silent_at_once(bus, two_queues):
    Binding.objects.all().delete()

    with pytest.raises(CommandError, match="No answer within 1h"):
        ping("--timeout", "1h")


@pytest.mark.parametrize("wrong", ["0", "soon", "-1"])
def test_a_timeout_that_is_none_is_refused(two_queues, wrong):
    with pytest.raises(CommandError, match="--timeout"):
        ping(f"--timeout={wrong}")


@pytest.mark.parametrize("event_type", [*PINGS, "system.pong"])
@pytest.mark.parametrize("body", [b"{}", b"no JSON"])
def test_a_ping_reaches_no_handler_no_inbox_and_no_dead_letter(bus, two_queues, event_type, body):
    bus.put(queue="a", type=event_type, body=body)
    bus.put(queue="a", type=event_type, body=body, id="")
    bus.put(queue="a", type="", routing_key=event_type, body=body)

    assert [bus.consume("a") for _ in range(3)] == [[], [], []]

    assert two_queues == []
    assert not InboxRecord.objects.exists()
    assert not DeadLetter.objects.exists()
    assert not QueuedMessage.objects.exists()


@pytest.mark.parametrize("event_type", ["systematic.review", "system.disk.full", "system"])
def test_an_event_that_only_sounds_like_a_ping_is_handled(bus, two_queues, event_type):
    bus.put(queue="a", type=event_type)

    bus.consume("a")

    assert [event.type for event in two_queues] == [event_type]


def test_a_header_does_not_make_an_event_a_ping(bus, two_queues):
    bus.put(queue="a", type="order.placed", headers={ORIGINAL_ROUTING_KEY: "system.ping"})

    bus.consume("a")

    assert [event.type for event in two_queues] == ["order.placed"]


@table("event_type", PINGS)
def test_a_ping_of_nano_service_is_answered_too(event_type):
    asked = Message(id="7", type=event_type, body=b"{}", reply_to="somewhere")

    pong = pong_to(asked, "shop.orders", "orders")

    assert (pong.type, pong.correlation_id) == ("system.pong", "7")
    assert (answer_in(pong).queue, answer_in(pong).service) == ("shop.orders", "orders")


@table(
    "asked",
    [
        Message(id="7", type="system.ping.1", body=b"{}"),
        Message(id="7", type="system.pong", body=b"{}", reply_to="somewhere"),
    ],
)
def test_nothing_else_is_answered(asked):
    assert pong_to(asked, "shop.orders", "orders") is None


@table("body", [b"", b"[]", b'{"queue": 1}', b"\xff", b"[" * 5000])
def test_an_answer_that_nobody_understands_is_none(body):
    assert answer_in(Message(id="7", type="system.pong", body=body)) is None


def test_what_is_recorded_of_a_message_says_nothing_of_where_to_answer():
    asked = Message(id="7", type="a", body=b"{}", reply_to="somewhere")

    assert asked.copy_for("q").reply_to == ""


@pytest.mark.django_db
def test_a_system_event_cannot_be_published():
    with pytest.raises(InvalidEvent, match="reserved for the bus"):
        publish("system.ping")

    class Ping(Event, type="system.ping"):
        pass

    with pytest.raises(InvalidEvent, match="reserved for the bus"):
        publish(Ping())


def test_every_queue_is_bound_to_get_pings(bus):
    bus.subscribe("order.placed")(lambda event: None)

    (spec,) = queue_specs()

    assert spec.bindings == (
        (conf.events_exchange, "order.placed"),
        (conf.events_exchange, "system.#"),
    )


@pytest.mark.usefixtures("no_subscriptions")
@override_settings(EVENTBUS={"SERVICE": "orders", "EXCHANGE_TYPES": {"events": "direct"}})
def test_on_a_direct_exchange_there_are_no_wildcards():
    subscribe("order.placed")(lambda event: None)

    (spec,) = queue_specs()

    assert [key for _, key in spec.system] == ["system.ping", "system.ping.1"]


def test_a_ping_does_not_count_for_max_messages(bus, two_queues):
    bus.put(queue="a", type="system.ping")
    publish("order.placed")
    bus.relay()

    call_command("consume_events", "--queue", "a", "--max-messages", "1", stdout=StringIO())

    assert len(two_queues) == 1


@pytest.mark.django_db
def test_the_next_ping_clears_away_what_a_killed_one_left():
    boxes = QueuedMessage.objects
    boxes.open_box("reply.killed")
    boxes.put([("reply.killed", Message(id="1", type="system.pong", body=b""), timezone.now())])
    boxes.open_box("reply.young")
    long_ago = timezone.now() - timedelta(hours=2)
    boxes.filter(queue="reply.killed").update(created_at=long_ago)

    boxes.open_box("reply.new")

    assert set(boxes.values_list("queue", flat=True)) == {"reply.young", "reply.new"}


@pytest.mark.django_db(transaction=True)
def test_a_consumer_that_dies_after_its_answer_answers_again_and_the_first_counts(manage):
    dying = manage("consume_events", env=FAST, kill_at="eventbus.pings.answered")
    dying.wait_for("Consuming")
    pinging = manage("eventbus_ping", "--timeout", "30s", env=FAST)
    assert dying.wait() == -9
    manage("consume_events", env=FAST)

    assert pinging.wait() == 0, pinging.output
    assert pinging.output.count(" ms\n") == len(queue_specs())
