"""What only the database transport has: leases that run out, and rows to look at."""

from __future__ import annotations

import pytest
from django.utils import timezone

from django_eventbus.conf import conf
from django_eventbus.models import QueuedMessage
from django_eventbus.subscriptions.subscription import registry
from tests.support.bus import table_away
from tests.support.helpers import eventually

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]


def let_lease_run_out():
    QueuedMessage.objects.update(available_at=timezone.now())


def test_an_ack_after_the_lease_ran_out_does_not_settle_what_another_holds(bus, caplog):
    bus.put()
    late = bus.receive()
    let_lease_run_out()
    holder = bus.receive()

    late.ack()

    assert QueuedMessage.objects.count() == 1
    assert "expired before the message was settled" in caplog.text
    holder.ack()
    assert not QueuedMessage.objects.exists()


def test_a_release_after_the_lease_ran_out_does_not_take_it_from_another(bus):
    bus.put()
    late = bus.receive()
    let_lease_run_out()
    holder = bus.receive()

    late.release()

    assert bus.receive() is None
    holder.ack()
    assert not QueuedMessage.objects.exists()


def test_a_released_message_can_be_made_to_wait(bus):
    bus.put()

    bus.receive().release(after=60)

    assert bus.receive() is None


def test_messages_come_in_the_order_in_which_they_were_put(bus):
    sent = [bus.put().id for _ in range(5)]

    assert [bus.receive().message.id for _ in range(5)] == sent


def test_a_queue_that_is_bound_but_has_no_subscription_is_named_at_start(bus, caplog):
    bus.subscribe("order.*", queue="old")(lambda event: None)
    registry.remove(next(iter(registry)))

    bus.subscribe("order.*", queue="new")(lambda event: None)

    assert f"Events order.* still go to the queue {conf.queue('old')}" in caplog.text


def test_leases_are_renewed_also_after_a_renewal_failed(bus, settings, caplog):
    settings.EVENTBUS = {
        **settings.EVENTBUS,
        "BROKER_OPTIONS": {"LEASE": "300ms"},
        "POLL_INTERVAL": "20ms",
    }
    bus.put()
    subscriber = bus.transport.subscriber([QueuedMessage.objects.get().queue], prefetch=1)
    delivery = subscriber.receive(1)
    first = QueuedMessage.objects.get().available_at

    with table_away("eventbus_queuedmessage"):
        eventually(lambda: "Leases were not renewed" in caplog.text)

    eventually(lambda: QueuedMessage.objects.get().available_at > first)
    delivery.ack()
    subscriber.close()
