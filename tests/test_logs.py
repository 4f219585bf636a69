"""One line per outcome, with fields; never a payload, never an error's words."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest
from django.utils import timezone

from django_eventbus import GiveUp, RetryLater, Skip, TooEarly, publish, publish_many, signals
from django_eventbus.models import DeadLetter, OutboxEvent
from django_eventbus.redrive import redrive
from django_eventbus.relay import Relay
from django_eventbus.signals import announce

SECRET = "hunter2"
STANDARD = set(vars(logging.makeLogRecord({})))


@pytest.fixture
def lines(caplog):
    """The records of our loggers."""
    caplog.set_level(logging.DEBUG, logger="django_eventbus")

    def lines(action: str = "") -> list[logging.LogRecord]:
        ours = [each for each in caplog.records if each.name.startswith("django_eventbus")]
        return [each for each in ours if getattr(each, "action", "") == action or not action]

    return lines


def failing(bus, error: BaseException, **options):
    @bus.subscribe("order.placed", **{"name": "charge", "retry": ["5m"], **options})
    def charge(event):
        raise error

    return publish("order.placed", {"card": SECRET})


def line(records) -> logging.LogRecord:
    (record,) = records
    return record


def fields(record: logging.LogRecord) -> dict:
    ours = {name: value for name, value in vars(record).items() if name not in STANDARD}
    return {name: value for name, value in ours.items() if name not in ("message", "asctime")}


def test_a_published_and_handled_event_is_a_line_each(bus, lines):
    @bus.subscribe("order.placed", name="charge")
    def charge(event):
        """Succeed."""

    made = publish("order.placed")
    bus.relay()
    bus.consume()

    published, handled = lines()
    assert published.getMessage() == f"Published order.placed {made}."
    assert fields(published) == {
        "action": "published",
        "event_id": str(made),
        "event_type": "order.placed",
    }
    assert handled.getMessage().startswith(f"Handled order.placed {made} by charge in 0.")
    duration = fields(handled).pop("duration_ms")
    assert 0 <= duration < 10_000
    assert fields(handled) == {
        "action": "handled",
        "event_id": str(made),
        "event_type": "order.placed",
        "queue": "shop.shop-tests",
        "subscription": "charge",
        "attempt": 1,
        "duration_ms": duration,
    }


def test_an_unroutable_event_is_a_warning(bus, lines):
    made = publish("order.placed")

    bus.relay()

    record = line(lines())
    assert (record.levelname, record.action) == ("WARNING", "unroutable")
    assert record.getMessage() == f"Unroutable: no queue is bound to take order.placed {made}."


def test_an_event_that_the_broker_will_never_take_is_an_error(db, lines):
    row = OutboxEvent(type="order.placed", message_id="1")

    announce(signals.event_failed, Relay, row=row, reason="too\nlarge")

    record = line(lines("failed"))
    assert record.levelname == "ERROR"
    assert record.getMessage() == r"Failed to publish order.placed 1: 'too\nlarge'"


def test_a_retry_is_a_warning_with_its_delay_attempt_and_kind_of_error(bus, lines):
    made = failing(bus, ValueError(SECRET))
    bus.relay()

    bus.consume()

    record = line(lines("retried"))
    assert (record.levelname, record.attempt) == ("WARNING", 1)
    assert record.getMessage() == (
        f"Retrying order.placed {made} by charge in 5m: attempt 1 of 2 raised ValueError."
    )


def test_a_parked_event_is_an_error_with_its_kind(bus, lines):
    made = failing(bus, GiveUp(SECRET))
    bus.relay()

    bus.consume()

    record = line(lines("parked"))
    assert record.levelname == "ERROR"
    assert record.getMessage() == f"Parked order.placed {made} by charge on attempt 1: given_up."


def test_a_skipped_event_is_a_line(bus, lines):
    made = failing(bus, Skip(SECRET))
    bus.relay()

    bus.consume()

    assert line(lines("skipped")).getMessage() == f"Skipped order.placed {made} by charge."


def test_a_deferred_event_is_a_line_with_its_time(bus, lines, caplog):
    until = timezone.now() + timedelta(hours=1)
    made = failing(bus, TooEarly(SECRET, until=until))
    bus.relay()

    bus.consume()

    message = line(lines("deferred")).getMessage()
    assert message == f"Deferred order.placed {made} by charge until {until.isoformat()}."
    assert SECRET not in caplog.text


def test_a_repeated_message_is_a_line_with_what_is_recorded(bus, lines):
    @bus.subscribe("order.placed", name="charge")
    def charge(event):
        """Succeed."""

    message = bus.put()
    bus.consume()
    bus.put(message)
    bus.consume()

    record = line(lines("repeated"))
    assert record.getMessage() == f"Repeated order.placed {message.id}: charge has it as handled."


def test_what_reached_no_subscription_is_named_by_its_queue(bus, lines):
    bus.put(body=b"{")

    bus.consume()

    assert "by shop.shop-tests on attempt 1: undecodable" in line(lines("parked")).getMessage()


def test_a_redrive_is_a_line_with_its_round(bus, lines):
    made = failing(bus, GiveUp(SECRET))
    bus.drain()

    redrive([DeadLetter.objects.get().pk], by=SECRET, using="default")

    record = line(lines("redriven"))
    assert record.getMessage() == f"Re-driving order.placed {made} to charge, round 1."
    assert fields(record) == {
        "action": "redriven",
        "event_id": str(made),
        "event_type": "order.placed",
    }


OUTCOMES = {
    "failed": ValueError(SECRET),
    "exit": SystemExit(SECRET),
    "odd": RetryLater(SECRET, after="7s"),
    "given-up": GiveUp(SECRET),
    "skipped": Skip(SECRET),
    "too-early": TooEarly(SECRET, until=timezone.now() + timedelta(days=30)),
    "database": DeadLetter.DoesNotExist(SECRET),
}
MALFORMED = {"body": b'{"card": "hunter2"', "headers": {"note": SECRET}}


def test_no_line_ever_holds_a_payload_or_the_words_of_an_error(bus, lines, caplog):
    @bus.subscribe("#", name="charge", retry=["5m"])
    def charge(event):
        raise OUTCOMES[event.type]

    publish_many([(each, {"card": SECRET}) for each in OUTCOMES])
    bus.put(**MALFORMED)
    bus.drain()
    redrive(DeadLetter.objects.values_list("pk", flat=True), by="me", using="default")
    bus.drain()

    for record in lines():
        assert SECRET not in str(vars(record)) + record.getMessage()
    assert SECRET not in caplog.text
    actions = {each.action for each in lines()}
    assert actions == {"published", "retried", "parked", "skipped", "redriven"}


FORGED = ["a\nERROR all is lost", "a\x1b[31m", "a\u2028b", "a\x00", "\ud800"]


def test_a_strangers_type_or_id_cannot_forge_a_line(bus, lines):
    for forged in FORGED:
        bus.put(type=forged, id=forged, body=b"{")
        bus.put(type=forged, headers={"eventbus-subscription": forged})
    bus.drain()
    redrive(DeadLetter.objects.values_list("pk", flat=True), by="me", using="default")
    bus.drain()

    assert {each.action for each in lines()} == {"retried", "parked", "redriven", "published"}
    for record in lines():
        assert record.getMessage().isprintable()
        assert (record.event_type + record.event_id).isprintable()


def test_a_receiver_that_raises_changes_nothing(bus, lines):
    @bus.subscribe("order.placed", name="charge")
    def charge(event):
        """Succeed."""

    def broken(**kwargs):
        raise RuntimeError("a project's receiver")

    signals.event_handled.connect(broken)
    try:
        bus.put()
        bus.consume()
    finally:
        signals.event_handled.disconnect(broken)

    assert line(lines("handled"))
