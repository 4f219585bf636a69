"""eventbus_doctor on the embedded transport, and what it reads from the tables on any."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from django.utils import timezone, translation

from django_eventbus import publish
from django_eventbus.models import Attempt, Binding, OutboxEvent, QueuedMessage
from django_eventbus.monitoring.doctor import diagnose
from django_eventbus.subscriptions.queue_specs import queue_specs

pytestmark = pytest.mark.django_db(transaction=True)

LONG_AGO = timezone.now() - timedelta(hours=2)


@pytest.fixture
def healthy(bus):
    bus.subscribe("order.*", name="orders")(lambda event: None)
    return bus


def said(bus, severity):
    found = diagnose(bus.transport, queue_specs())
    return " ".join(each.text for each in found if each.severity == severity)


def test_a_healthy_bus_has_neither_errors_nor_warnings_of_its_own(healthy):
    publish("order.placed", {})
    healthy.relay()

    assert said(healthy, "error") == ""
    assert "orders" not in said(healthy, "warning")
    assert "only a broker has them" in said(healthy, "unchecked")


def test_a_binding_that_is_missing_is_an_error_and_the_command_ends_with_1(healthy):
    Binding.objects.all().delete()

    assert "is not bound to" in said(healthy, "error")
    with pytest.raises(CommandError, match=r"^1 problem loses messages"):
        call_command("eventbus_doctor", stdout=StringIO())


def test_a_missing_binding_for_pings_is_a_warning(healthy):
    Binding.objects.filter(pattern="system.#").delete()

    assert said(healthy, "error") == ""
    assert "with 'system.#': such events do not reach it" in said(healthy, "warning")


def test_a_binding_that_nothing_subscribes_to_is_told(healthy):
    queue = Binding.objects.first().queue
    Binding.objects.create(exchange="x", queue=queue, pattern="old.*")

    assert "receives events 'old.*', but this project" in said(healthy, "warning")


def test_events_that_no_queue_receives_or_that_the_broker_refused_are_reported(healthy):
    publish("nobody.wants", {})
    healthy.relay()
    publish("order.placed", {})
    OutboxEvent.objects.filter(type="order.placed").update(state="failed")

    told = said(healthy, "warning")

    assert "Database 'default': 1 event was not delivered: no queue is bound" in told
    assert "No queue is bound to receive events of the type 'nobody.wants'." in told
    assert "Database 'default': 1 event was refused by the broker." in told


@contextmanager
def another_database(alias, **settings):
    """Have one more connection to the database; Django's tests let it through by its alias."""
    connections.settings[alias] = connections.settings["default"]
    connections[alias] = connections["default"].copy()
    connections[alias].settings_dict.update(settings)
    try:
        yield
    finally:
        connections[alias].close()
        del connections[alias]
        del connections.settings[alias]


def test_an_outbox_in_a_database_that_no_subscription_uses_is_looked_at_too(healthy):
    publish("order.placed", {})
    OutboxEvent.objects.update(created_at=LONG_AGO)

    with another_database("other"), another_database("away", NAME="/nowhere/at/all"):
        found = diagnose(healthy.transport, queue_specs())

    (other,) = [each for each in found if each.about.get("database") == "other"]
    assert other.text.startswith("Database 'other': 1 event has waited in the outbox for 2h")
    assert "Start relay_events --database other" in other.remedy


def test_what_waits_too_long_is_told(healthy):
    publish("order.placed", {})
    OutboxEvent.objects.update(created_at=LONG_AGO)
    healthy.put()
    QueuedMessage.objects.update(available_at=LONG_AGO)

    told = said(healthy, "warning")

    assert "1 event has waited in the outbox for 2h." in told
    assert "1 message waits in" in told


def test_the_report_is_in_english_whatever_the_language(healthy):
    publish("order.placed", {})
    OutboxEvent.objects.update(state="failed")

    with translation.override("de"):
        assert "1 event was refused by the broker." in said(healthy, "warning")


def test_a_handler_near_the_consumer_timeout_is_told(healthy):
    Attempt.objects.create(
        subscription="orders",
        message_id="1",
        round=0,
        attempt=1,
        started_at=LONG_AGO,
        duration=1600,
    )

    assert "An attempt of orders took" in said(healthy, "warning")


def test_the_command_says_that_nothing_loses_messages(healthy):
    out = StringIO()

    call_command("eventbus_doctor", stdout=out)

    assert out.getvalue().endswith("No problem that loses messages was found.\n")
