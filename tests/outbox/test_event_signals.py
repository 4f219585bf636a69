"""A Django signal that crosses processes."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest
from asgiref.sync import sync_to_async
from django.db import connections, transaction
from django.dispatch import receiver

from django_eventbus import Event, EventSignal
from django_eventbus.exceptions import InvalidEvent
from django_eventbus.models import InboxRecord, OutboxEvent
from django_eventbus.subscriptions.queue_specs import queue_specs
from django_eventbus.subscriptions.subscription import registry
from tests.shop.models import Effect

pytestmark = pytest.mark.django_db(transaction=True)


class OrderPlaced(Event, type="order.placed"):
    order_id: int
    total: Decimal = Decimal(0)


@pytest.fixture
def placed(bus):
    signal = EventSignal(OrderPlaced, key="order_id")
    yield signal
    for name in list(signal._subscriptions):
        signal.disconnect(dispatch_uid=name)


def connect(bus, signal, function, **options):
    receiver(signal, **options)(function)
    bus.transport.declare(queue_specs())


def note(event, who):
    Effect.objects.create(event_id=event.meta.id, subscription=who)


def test_sending_writes_a_row_and_runs_no_receiver(bus, placed):
    ran = []
    connect(bus, placed, lambda sender, **kwargs: ran.append(1), dispatch_uid="billing")

    event_id = placed.send(sender="view", order_id=7, total=Decimal("9.90"))

    row = OutboxEvent.objects.get()
    assert (row.message_id, row.type, row.key) == (str(event_id), "order.placed", "7")
    assert bytes(row.body) == b'{"order_id":7,"total":"9.90"}'
    assert not ran


def test_what_is_sent_in_a_transaction_that_is_rolled_back_is_not_sent(bus, placed):
    with transaction.atomic():
        placed.send(order_id=1)
        transaction.set_rollback(True)

    assert not OutboxEvent.objects.exists()


def test_each_receiver_is_a_subscription_of_its_own_and_runs_once(bus, placed):
    seen = []

    def charge(sender, signal, event, **kwargs):
        seen.append((sender, signal, event.order_id))
        note(event, "charge")

    connect(bus, placed, charge, dispatch_uid="billing.charge", queue="billing")
    connect(bus, placed, lambda event, **kwargs: note(event, "ship"), dispatch_uid="ship")
    placed.send(order_id=7)

    bus.drain()
    bus.drain()

    assert seen == [(OrderPlaced, placed, 7)]
    assert sorted(Effect.objects.values_list("subscription", flat=True)) == ["charge", "ship"]
    records = InboxRecord.objects.values_list("subscription", flat=True)
    assert sorted(records) == ["billing.charge", "ship"]


def test_a_receiver_that_fails_is_retried_and_its_sibling_is_not(bus, placed):
    attempts = []

    def flaky(event, **kwargs):
        attempts.append(event.meta.attempt)
        if event.meta.attempt == 1:
            raise ValueError("not yet")

    connect(bus, placed, flaky, dispatch_uid="flaky", retry=["1s"])
    connect(bus, placed, lambda event, **kwargs: note(event, "sibling"), dispatch_uid="sibling")
    placed.send(order_id=7)

    bus.drain()

    assert attempts == [1, 2]
    assert Effect.objects.count() == 1


def test_to_connect_the_same_receiver_again_changes_nothing(bus, placed):
    def charge(event, **kwargs): ...

    connect(bus, placed, charge, dispatch_uid="charge")
    connect(bus, placed, charge, dispatch_uid="charge")

    assert [each.name for each in registry] == ["charge"]


def test_without_a_dispatch_uid_a_receiver_is_named_by_its_place(bus, placed):
    connect(bus, placed, note)

    assert registry.latest.name == "tests.outbox.test_event_signals.note"
    assert placed.has_listeners()


def test_to_disconnect_takes_the_subscription_away(bus, placed):
    connect(bus, placed, note, dispatch_uid="billing")
    connect(bus, placed, note, dispatch_uid=7)
    connect(bus, placed, note)

    assert placed.disconnect(dispatch_uid="billing")
    assert placed.disconnect(dispatch_uid=7)
    assert placed.disconnect(note)
    assert not placed.disconnect(note)
    assert not placed.has_listeners()
    assert not list(registry)


def test_a_sender_cannot_be_chosen_because_it_does_not_travel(placed):
    with pytest.raises(TypeError, match="does not transmit its sender"):
        placed.connect(note, sender=OrderPlaced)


def test_a_signal_by_type_carries_its_fields_as_the_payload(bus):
    signal = EventSignal("order.placed", key=lambda fields: fields["order_id"] * 2)

    signal.send(order_id=3)
    signal.send_robust(order_id=4)

    rows = OutboxEvent.objects.order_by("id")
    assert [(bytes(row.body), row.key) for row in rows] == [
        (b'{"order_id":3}', "6"),
        (b'{"order_id":4}', "8"),
    ]


def test_a_field_of_the_wrong_kind_is_refused_at_once(bus, placed):
    with pytest.raises(InvalidEvent, match="order_id"):
        placed.send(order_id="seven")

    assert not OutboxEvent.objects.exists()


def test_it_can_be_sent_from_async_code(bus, placed):
    async def send():
        sent = [await placed.asend(order_id=1), await placed.asend_robust(order_id=2)]
        await sync_to_async(connections.close_all)()
        return sent

    ids = asyncio.run(send())

    sent = OutboxEvent.objects.order_by("id").values_list("message_id", flat=True)
    assert list(sent) == [str(each) for each in ids]
