"""publish(debug=True), and who handles it."""

from __future__ import annotations

import pytest

from django_eventbus import publish, publish_many
from django_eventbus.events.message import DEBUG, Message
from django_eventbus.models import DeadLetter, InboxRecord, OutboxEvent
from django_eventbus.redrive.letters import redrive
from django_eventbus.subscriptions.outcomes import Handled
from tests.support.tables import table


@pytest.fixture
def seen(bus):
    """What each of two subscriptions on two queues was given, one of them with a debug handler."""
    seen = []

    def debug(event):
        seen.append(("debug", event.payload, event.meta.is_debug))

    @bus.subscribe("order.*", queue="a", name="a", debug_handler=debug)
    def with_one(event):
        seen.append(("handler", event.payload, event.meta.is_debug))

    @bus.subscribe("order.*", queue="b", name="b")
    def without(event):
        seen.append(("other", event.payload, event.meta.is_debug))

    return seen


def test_an_event_for_debugging_reaches_the_debug_handler_instead(bus, seen):
    publish("order.placed", 1, debug=True)
    publish("order.placed", 2)
    bus.relay()

    assert bus.consume("a") + bus.consume("a") == [Handled(), Handled()]

    assert seen == [("debug", 1, True), ("handler", 2, False)]
    assert InboxRecord.objects.filter(state="handled").count() == 2


def test_without_a_debug_handler_the_handler_runs(bus, seen):
    publish("order.placed", 1, debug=True)
    bus.relay()

    assert bus.consume("b") == [Handled()]

    assert seen == [("other", 1, True)]


def test_many_events_can_be_for_debugging(bus, seen):
    publish_many([("order.placed", 1), ("order.placed", 2)], debug=True)
    bus.drain()

    assert [each for each in seen if each[0] == "debug"] == [("debug", 1, True), ("debug", 2, True)]


def test_a_failed_debug_handler_is_retried_parked_and_re_driven_as_such(bus):
    ran = []

    def debug(event):
        ran.append((event.meta.round, event.meta.attempt))
        if not event.meta.round:
            raise ValueError

    @bus.subscribe("order.*", retry=["1s"], debug_handler=debug)
    def handler(event):
        raise AssertionError("the handler ran")

    publish("order.placed", debug=True)
    bus.drain()
    redrive([bus.letter.pk], by="ada", using="default")
    bus.drain()

    assert ran == [(0, 1), (0, 2), (1, 1)]
    assert bus.letter.state == DeadLetter.State.HEALED


def test_an_event_is_for_debugging_only_if_it_says_so(bus, seen):
    publish("order.placed")

    assert DEBUG not in OutboxEvent.objects.get().headers


@table("value", ["true", 1, None, False])
def test_nothing_but_true_is_for_debugging(value):
    message = Message(id="1", type="a", body=b"", headers={DEBUG: value})

    assert not message.is_debug
    assert DEBUG not in message.stripped().headers


def test_a_retry_that_goes_without_its_headers_is_still_for_debugging():
    message = Message(id="1", type="a", body=b"", headers={DEBUG: True, "tenant": "x"})

    assert message.stripped().headers == {DEBUG: True}
