"""Hooks of a subscription, and its timeout."""

from __future__ import annotations

import json
import time

import pytest
from django.db import connection

from django_eventbus import Event, publish
from django_eventbus.models import InboxRecord
from django_eventbus.subscriptions.outcomes import Handled, Park, Retry
from tests.shop.models import Effect

pytestmark = pytest.mark.django_db(transaction=True)


class Told:
    """Remembers what a hook was given, and what was recorded by then."""

    def __init__(self):
        self.calls = []

    def __call__(self, error, event):
        state = InboxRecord.objects.values_list("state", flat=True).get()
        self.calls.append((str(error), event.meta.attempt, state, connection.in_atomic_block))


def fail(event):
    Effect.objects.create(event_id=event.meta.id)
    raise ValueError("no")


def test_each_outcome_is_told_once_after_it_is_recorded(bus):
    retried, parked = Told(), Told()
    bus.subscribe("order.*", retry=["1s", "2s"], on_retry=retried, on_parked=parked)(fail)
    publish("order.placed", {"order_id": 1})

    bus.drain()

    assert retried.calls == [("no", 1, "retrying", False), ("no", 2, "retrying", False)]
    assert parked.calls == [("no", 3, "parked", False)]
    assert not Effect.objects.exists()


def test_a_copy_that_comes_again_is_not_told_again(bus):
    parked = Told()
    bus.subscribe("order.*", tries=1, on_parked=parked)(fail)
    message = bus.put()

    bus.consume()
    bus.put(message)
    bus.consume()

    assert len(parked.calls) == 1


@pytest.mark.parametrize("failure", [RuntimeError, SystemExit])
def test_a_hook_that_fails_is_logged_and_changes_nothing(bus, caplog, failure):
    def broken(error, event):
        raise failure("secret payload")

    bus.subscribe("order.*", tries=1, name="billing", on_parked=broken)(fail)
    bus.put()

    assert [type(each) for each in bus.consume()] == [Park]
    assert f"A hook of billing raised {failure.__name__}" in caplog.text
    assert "secret payload" not in caplog.text


class OrderPlaced(Event, type="order.placed"):
    order_id: int


def test_a_hook_is_given_the_payload_that_no_event_could_be_made_of(bus):
    told = []

    def tell(error, event):
        told.append((type(error).__name__, event.type, event.payload))

    bus.subscribe(OrderPlaced, on_parked=tell)(fail)
    bus.put(body=b'{"order_id":"seven"}')

    bus.consume()

    assert told == [("InvalidPayload", "order.placed", {"order_id": "seven"})]


def test_a_handler_that_takes_too_long_is_rolled_back_and_tried_again(bus):
    @bus.subscribe("order.*", timeout="200ms", retry=["1s"])
    def slow(event):
        Effect.objects.create(event_id=event.meta.id)
        if event.meta.attempt == 1:
            time.sleep(0.25)

    bus.put()

    assert bus.consume() == [Retry(delay=1.0)]
    assert InboxRecord.objects.get().error == (
        "HandlerTimeout: the handler took longer than its timeout of 0.2 s"
    )
    assert not Effect.objects.exists()
    bus.pass_time()
    assert bus.consume() == [Handled()]


@pytest.mark.postgres
def test_a_statement_that_takes_too_long_is_cancelled_by_the_database(bus):
    @bus.subscribe("order.*", timeout="200ms", retry=["1s"])
    def slow(event):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(20)")

    bus.put()
    began = time.monotonic()

    assert bus.consume() == [Retry(delay=1.0)]
    assert time.monotonic() - began < 10
    assert "statement timeout" in InboxRecord.objects.get().error
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone() == ("0",)


def test_a_handler_that_does_not_come_back_ends_the_process(manage):
    publish("slow.forever", {})

    worker = manage("consume_events", "--with-relay", env=FAST)

    assert worker.wait() == 75, worker.output
    assert "The handler of shop.forever did not return. The process exits." in worker.output


FAST = {"EVENTBUS_TEST_SETTINGS": json.dumps({"POLL_INTERVAL": "30ms"})}
