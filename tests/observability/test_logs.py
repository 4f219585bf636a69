"""One line per outcome, with fields; never a payload, never an error's words."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest
from django.utils import timezone

from django_eventbus import GiveUp, RetryLater, Skip, TooEarly, publish, publish_many, signals
from django_eventbus.conf import conf
from django_eventbus.exceptions import BrokerUnavailable
from django_eventbus.models import DeadLetter, OutboxEvent
from django_eventbus.outages import OutageWatch
from django_eventbus.outbox.relay import Relay
from django_eventbus.redrive.letters import redrive
from django_eventbus.signals import announce
from tests.support.spans import own_id
from tests.support.spans import spans as spans

SECRET = "hunter2"
STANDARD = set(vars(logging.makeLogRecord({})))


@pytest.fixture
def lines(caplog):
    """The records of our loggers."""
    caplog.set_level(logging.DEBUG, logger="django_eventbus")

    def lines(code: str = "") -> list[logging.LogRecord]:
        ours = [each for each in caplog.records if each.name.startswith("django_eventbus")]
        return [each for each in ours if getattr(each, "code", "") == code or not code]

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

    made = publish("order.placed", correlation_id="c1")
    bus.relay()
    bus.consume()

    published, handled = lines()
    assert published.getMessage() == f"Published order.placed {made}."
    assert (published.levelname, handled.levelname) == ("DEBUG", "DEBUG")
    assert fields(published) == {
        "code": "EVENT_PUBLISHED",
        "event_id": str(made),
        "event_type": "order.placed",
        "queue": "",
        "subscription": "",
        "routing_key": "order.placed",
        "correlation_id": "c1",
    }
    assert handled.getMessage().startswith(f"Handled order.placed {made} by charge in 0.")
    duration = fields(handled).pop("duration_ms")
    assert 0 <= duration < 10_000
    assert fields(handled) == {
        "code": "EVENT_HANDLED",
        "event_id": str(made),
        "event_type": "order.placed",
        "queue": "shop.shop-tests",
        "subscription": "charge",
        "routing_key": "order.placed",
        "correlation_id": "c1",
        "attempt": 1,
        "error_type": "",
        "duration_ms": duration,
    }


def test_an_unroutable_event_is_a_warning(bus, lines):
    made = publish("order.placed")

    bus.relay()

    record = line(lines())
    assert (record.levelname, record.code) == ("WARNING", "EVENT_UNROUTABLE")
    assert record.getMessage() == f"No queue is bound to receive order.placed {made}."


def test_an_event_that_the_broker_will_never_take_is_an_error(db, lines):
    row = OutboxEvent(type="order.placed", message_id="1")

    announce(signals.event_failed, Relay, row=row, reason="too\nlarge")

    record = line(lines("EVENT_FAILED"))
    assert record.levelname == "ERROR"
    assert record.getMessage() == r"Failed to publish order.placed 1: 'too\nlarge'"


def test_a_retry_is_an_error_with_its_delay_attempt_and_kind_of_error(bus, lines):
    made = failing(bus, ValueError(SECRET))
    bus.relay()

    bus.consume()

    record = line(lines("EVENT_RETRIED"))
    assert (record.levelname, record.attempt, record.error_type) == ("ERROR", 1, "ValueError")
    assert record.getMessage() == (
        f"Retrying order.placed {made} by charge in 5m: attempt 1 of 2 raised ValueError."
    )


def test_a_parked_event_is_critical_with_its_kind(bus, lines):
    made = failing(bus, GiveUp(SECRET))
    bus.relay()

    bus.consume()

    record = line(lines("EVENT_PARKED"))
    assert (record.levelname, record.kind, record.error_type) == ("CRITICAL", "given_up", "GiveUp")
    assert record.getMessage() == f"Parked order.placed {made} by charge on attempt 1: given_up."


def test_a_skipped_event_is_a_warning(bus, lines):
    made = failing(bus, Skip(SECRET))
    bus.relay()

    bus.consume()

    record = line(lines("EVENT_SKIPPED"))
    assert (record.levelname, record.error_type) == ("WARNING", "Skip")
    assert record.getMessage() == f"Skipped order.placed {made} by charge."


def test_a_deferred_event_is_a_line_with_its_time(bus, lines, caplog):
    until = timezone.now() + timedelta(hours=1)
    made = failing(bus, TooEarly(SECRET, until=until))
    bus.relay()

    bus.consume()

    message = line(lines("EVENT_DEFERRED")).getMessage()
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

    record = line(lines("EVENT_REPEATED"))
    assert record.getMessage() == (
        f"Received order.placed {message.id} again: charge recorded it as handled."
    )


def test_what_reached_no_subscription_is_named_by_its_queue(bus, lines):
    bus.put(body=b"{")

    bus.consume()

    assert (
        "by shop.shop-tests on attempt 1: undecodable" in line(lines("EVENT_PARKED")).getMessage()
    )


def test_a_redrive_is_a_line_with_its_round(bus, lines):
    made = failing(bus, GiveUp(SECRET))
    bus.drain()

    redrive([DeadLetter.objects.get().pk], by=SECRET, using="default")

    record = line(lines("EVENT_REDRIVEN"))
    assert record.getMessage() == f"Re-driving order.placed {made} to charge, round 1."
    assert fields(record) == {
        "code": "EVENT_REDRIVEN",
        "event_id": str(made),
        "event_type": "order.placed",
        "queue": "shop.shop-tests",
        "subscription": "charge",
        "routing_key": "order.placed",
        "correlation_id": str(made),
        "error_type": "GiveUp",
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
    told = ("PUBLISHED", "RETRIED", "PARKED", "SKIPPED", "REDRIVEN")
    assert {each.code for each in lines()} == {f"EVENT_{each}" for each in told}


FORGED = ["a\nERROR all is lost", "a\x1b[31m", "a\u2028b", "a\x00", "\ud800"]


def test_a_strangers_type_or_id_cannot_forge_a_line(bus, lines):
    for forged in FORGED:
        bus.put(type=forged, id=forged, body=b"{")
        bus.put(type=forged, headers={"eventbus-subscription": forged})
    bus.drain()
    redrive(DeadLetter.objects.values_list("pk", flat=True), by="me", using="default")
    bus.drain()

    told = ("RETRIED", "PARKED", "REDRIVEN", "PUBLISHED")
    assert {each.code for each in lines()} == {f"EVENT_{each}" for each in told}
    for record in lines():
        assert record.getMessage().isprintable()
        assert "".join(str(each) for each in fields(record).values()).isprintable()


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

    assert line(lines("EVENT_HANDLED"))


def test_the_level_of_each_code_is_a_setting(bus, lines, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "LOG_LEVELS": {"EVENT_RETRIED": "INFO"}}
    failing(bus, ValueError())
    bus.drain()

    levels = {each.code: each.levelname for each in lines()}
    assert levels["EVENT_RETRIED"] == "INFO"
    assert levels["EVENT_PARKED"] == "CRITICAL"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"EVENT_HANDELD": "INFO"}, "'EVENT_HANDELD' is not one of EVENT_PUBLISHED"),
        ({"EVENT_HANDLED": "LOUD"}, "'LOUD' is not one of DEBUG"),
        ({"EVENT_HANDLED": ["INFO"]}, "is not one of DEBUG"),
        ({("a",): "INFO"}, "is not one of EVENT_PUBLISHED"),
        (["EVENT_HANDLED"], "is not a dict of levels by code"),
        ("INFO", "is not a dict of levels by code"),
    ],
)
def test_a_level_or_a_code_that_does_not_exist_is_named(settings, given, problem):
    settings.EVENTBUS = {**settings.EVENTBUS, "LOG_LEVELS": given}

    (found,) = conf.problems()

    assert problem in str(found)


def test_a_line_that_nobody_sees_is_not_described(bus, caplog):
    caplog.set_level(logging.INFO, logger="django_eventbus")
    row = OutboxEvent(type="order.placed")
    # To describe it would fail.
    row.message_id = None

    ((_, result),) = signals.event_published.send_robust(Relay, row=row)

    assert result is None
    assert not caplog.records


def test_an_outage_is_a_line_at_each_end_with_its_kind(lines):
    watch = OutageWatch(None, "relay")
    watch.begin(BrokerUnavailable("The broker is gone.", kind="io"))
    watch.end()

    began, ended = lines()
    assert (began.code, began.levelname, began.kind) == ("OUTAGE_BEGAN", "ERROR", "io")
    assert (began.error_type, ended.kind) == ("BrokerUnavailable", "io")
    assert (ended.code, ended.levelname) == ("OUTAGE_ENDED", "WARNING")


def trace(record: logging.LogRecord) -> tuple[str, str]:
    return record.trace_id, record.span_id


def ids(span) -> tuple[str, str]:
    return f"{span.context.trace_id:032x}", own_id(span)


def test_a_line_names_the_span_of_the_attempt_and_those_of_relay_and_redrive_that_of_the_event(
    bus, lines, spans
):
    failing(bus, GiveUp(SECRET))
    bus.drain()
    redrive([DeadLetter.objects.get().pk], by="me", using="default")

    created = spans.named("create")[0]
    assert trace(line(lines("EVENT_PUBLISHED"))) == ids(created)
    assert trace(line(lines("EVENT_PARKED"))) == ids(spans.one("process"))
    assert trace(line(lines("EVENT_REDRIVEN"))) == ids(created)


def test_what_reached_no_subscription_is_told_with_the_trace_that_it_came_with(bus, lines, spans):
    given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    bus.put(body=b"{", headers={"traceparent": given})

    bus.consume()

    told = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
    assert trace(line(lines("EVENT_PARKED"))) == told


def test_a_line_without_a_span_names_none(bus, lines, spans):
    OutageWatch(None, "relay").begin(BrokerUnavailable("The broker is gone.", kind="io"))
    with spans.tracer.start_as_current_span("turn") as turn:
        OutageWatch(None, "relay").begin(BrokerUnavailable("The broker is gone.", kind="io"))

    without, within = lines("OUTAGE_BEGAN")
    assert not hasattr(without, "trace_id")
    assert trace(within) == ids(turn)
