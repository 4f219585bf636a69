"""A message whose outcome cannot be recorded is parked as it arrived, or waits; no process ends."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import DatabaseError, connection

from django_eventbus import publish
from django_eventbus.consumer.last_resort import Breaker
from django_eventbus.exceptions import RecordingFailed
from django_eventbus.models import DeadLetter, InboxRecord
from django_eventbus.outages import is_about_values
from django_eventbus.redrive.letters import redrive
from tests.end_to_end.oracle import FAST
from tests.shop.models import Effect
from tests.support.bus import bus as bus
from tests.support.helpers import eventually
from tests.support.tables import table

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]

BODY = b'{"n": 1e400, "n": [1,  2]}'


@contextmanager
def refused_inserts(name: str, sqlstate: str = "22003") -> Iterator[None]:
    """Refuse each row of a table, as a database does that cannot hold a value."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
                f"$$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{sqlstate}'; END $$"
            )
            body = "FOR EACH ROW EXECUTE FUNCTION refuse()"
        else:
            body = "BEGIN SELECT RAISE(ABORT, 'no'); END"
        cursor.execute(f"CREATE TRIGGER refusal BEFORE INSERT ON {name} {body}")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            on = f" ON {name}" if connection.vendor == "postgresql" else ""
            cursor.execute(f"DROP TRIGGER refusal{on}")
            if connection.vendor == "postgresql":
                cursor.execute("DROP FUNCTION refuse()")


@pytest.fixture
def handler(bus):
    """A handler that fails for events of type order.failed."""

    @bus.subscribe("order.*", name="handle", retry=[])
    def handle(event):
        if event.type == "order.failed":
            raise ValueError("no stock")
        Effect.objects.create(event_id=event.meta.id, subscription="handle")

    return handle


def test_a_failure_that_cannot_be_recorded_is_parked_with_its_bytes(bus, handler, caplog):
    bad = bus.put(type="order.failed", body=BODY.replace(b"1e400", b"1"), headers={"a": "b"})
    good = bus.put()

    with refused_inserts("eventbus_attempt"):
        bus.consume()
        bus.consume()

    letter = DeadLetter.objects.get()
    assert (letter.kind, letter.message_id, letter.subscription) == ("unrecorded", bad.id, "handle")
    assert (bytes(letter.body), letter.headers, letter.payload) == (bad.body, {}, None)
    assert list(Effect.objects.values_list("event_id", flat=True)) == [good.id]
    assert f"The outcome of {bad.id} cannot be recorded" in caplog.text
    assert "no stock" not in caplog.text.replace(letter.error, "")


def test_what_was_parked_as_it_arrived_is_handled_by_a_re_drive(bus, handler):
    bad = bus.put(type="order.failed")
    with refused_inserts("eventbus_attempt"):
        bus.consume()
    DeadLetter.objects.update(type="order.placed")

    redrive([DeadLetter.objects.get().pk], by="ada", using="default")
    bus.drain()

    assert DeadLetter.objects.get().state == "healed"
    assert list(Effect.objects.values_list("event_id", flat=True)) == [bad.id]


def test_equal_messages_that_cannot_be_recorded_have_a_dead_letter_each(bus, handler):
    message = bus.put(type="order.failed")
    bus.put(message)

    with refused_inserts("eventbus_attempt"):
        bus.consume()
        bus.consume()

    assert list(DeadLetter.objects.values_list("message_id", flat=True)) == [message.id] * 2
    assert len(set(DeadLetter.objects.values_list("variant", flat=True))) == 2


def test_an_undecodable_message_that_cannot_be_recorded_waits(bus, handler):
    bus.put(body=b"not JSON")

    with refused_inserts("eventbus_deadletter"), pytest.raises(RecordingFailed):
        bus.consume()

    assert not DeadLetter.objects.exists()
    bus.consume_after_a_cut()
    assert DeadLetter.objects.get().kind == "undecodable"


def test_a_missing_column_parks_nothing_and_ends_nothing(bus, handler):
    bad = bus.put(type="order.failed")
    rename = "ALTER TABLE eventbus_attempt RENAME COLUMN {} TO {}"

    with connection.cursor() as cursor:
        cursor.execute(rename.format("tier", "level"))
    try:
        with pytest.raises(RecordingFailed) as outage:
            bus.consume()
    finally:
        with connection.cursor() as cursor:
            cursor.execute(rename.format("level", "tier"))

    assert outage.value.kind == "recording"
    assert not DeadLetter.objects.exists()
    bus.consume_after_a_cut()
    assert DeadLetter.objects.get().message_id == bad.id


def test_the_same_error_for_three_messages_is_not_about_the_messages(bus, handler):
    for _ in range(3):
        bus.put(type="order.failed")

    with refused_inserts("eventbus_attempt"):
        bus.consume()
        bus.consume()
        with pytest.raises(RecordingFailed):
            bus.consume()

    assert DeadLetter.objects.filter(kind="unrecorded").count() == 2
    bus.consume_after_a_cut()
    assert DeadLetter.objects.filter(kind="failed").count() == 1
    assert eventually(lambda: InboxRecord.objects.get().state == "parked")


def test_a_kill_after_the_last_resort_parks_again_and_loses_nothing(manage):
    event = str(publish("act.now", {"do": "fail"}))
    unrecorded = DeadLetter.objects.filter(kind="unrecorded", message_id=event)

    with refused_inserts("eventbus_attempt"):
        killed = manage(
            "consume_events", "--with-relay", env=FAST, kill_at="eventbus.last_resort.parked"
        )
        assert killed.wait() == -signal.SIGKILL
        assert unrecorded.count() == 1
        worker = manage("consume_events", "--with-relay", env=FAST)
        eventually(lambda: unrecorded.count() == 2, timeout=30)
        # Its sibling is handled, once.
        eventually(lambda: Effect.objects.filter(subscription="shop.witness").count() == 1)
        worker.terminate()
        assert worker.wait() == 0

    assert {letter.subscription for letter in unrecorded} == {"shop.act"}


def test_a_success_in_between_closes_the_breaker():
    breaker = Breaker()

    first = [breaker.is_open_after("insert", each) for each in ("1", "2", "2")]
    breaker.close()
    again = [breaker.is_open_after("insert", each) for each in ("3", "4", "5", "6")]
    other = breaker.is_open_after("update", "7")

    assert (first, again, other) == ([False] * 3, [False, False, True, True], False)


@pytest.mark.postgres
@table(
    ("sqlstate", "about_values"),
    [("22003", True), ("23514", True), ("54000", True), ("25006", False), ("42703", False),
     ("53100", False), ("55000", False), ("57014", False), ("58030", False), ("XX000", False)],
)  # fmt: skip
def test_the_state_of_postgresql_decides_whose_fault_it_is(sqlstate, about_values):
    with pytest.raises(DatabaseError) as refusal, connection.cursor() as cursor:
        cursor.execute(f"DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '{sqlstate}'; END $$")

    assert is_about_values(refusal.value) is about_values


@table(
    ("error", "about_values"),
    [(OverflowError(), True), (UnicodeEncodeError("utf-8", "x", 0, 1, "x"), True),
     (RecursionError(), True), (TypeError(), True), (KeyError(), False), (OSError(), False)],
)  # fmt: skip
def test_errors_of_python_are_about_values_or_not(error, about_values):
    assert is_about_values(error) is about_values
