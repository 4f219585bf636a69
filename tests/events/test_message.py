"""The wire value: what may be wrong with it, and what it never raises."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_eventbus import RetryLater
from django_eventbus.events.formats import read
from django_eventbus.events.message import (
    NOT_BEFORE,
    REDRIVEN_AT,
    REDRIVEN_COUNT,
    REDRIVEN_TRIES,
    RETRY_COUNT,
    SUBSCRIPTION,
    VERSION,
    Message,
    _next_tick,
    uuid7,
)
from django_eventbus.events.text import storable, storable_json
from django_eventbus.exceptions import Undecodable
from django_eventbus.models import DeadLetter
from django_eventbus.subscriptions.outcomes import Handled
from tests.support.tables import table

pytestmark = pytest.mark.both_databases

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SURROGATE = "\ud800"


def message(**changes):
    return Message(**{"id": "1", "type": "order.placed", "body": b"{}", **changes})


def nested(levels):
    value = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@table(
    ("body", "expected"),
    [
        (b"{}", {}),
        (b' {"a": [1, 2.5, null, true]} ', {"a": [1, 2.5, None, True]}),
        (b"null", None),
        (b'"text"', "text"),
        (b'{"a": 1, "a": 2}', {"a": 2}),
        (b'"\\u0000"', "\x00"),
        (b"1" * 30, int("1" * 30)),
    ],
)
def test_any_json_is_a_payload(body, expected):
    assert read(message(body=body), 1000).payload == expected


@table(
    "content_type",
    ["application/json", "", "APPLICATION/JSON", "application/json; charset=utf-8"],
)
def test_json_is_read_whatever_its_content_type_looks_like(content_type):
    assert read(message(content_type=content_type), 1000).payload == {}


@table(
    ("changes", "reason"),
    [
        ({"id": ""}, "has no message_id"),
        ({"id": "x" * 256}, "longer than 255 bytes"),
        ({"id": "ä" * 128}, "longer than 255 bytes"),
        ({"id": "a\x00b"}, "contains a NUL"),
        ({"id": SURROGATE}, "lone surrogate"),
        ({"type": ""}, "no usable type"),
        ({"type": "x" * 256}, "no usable type"),
        ({"type": "a\x00"}, "no usable type"),
        ({"type": SURROGATE}, "no usable type"),
        ({"content_type": "application/xml"}, "is application/xml, not application/json"),
        ({"content_type": "application/x-python-pickle"}, "not application/json"),
        ({"content_type": f"{SURROGATE}\x00" * 999}, "not application/json"),
        ({"body": b"x" * 1_001}, "has 1001 bytes; MAX_BODY_BYTES is 1000"),
        ({"body": b""}, "not JSON"),
        ({"body": b"{"}, "not JSON"),
        ({"body": b"{} {}"}, "not JSON"),
        ({"body": b'"\xff"'}, "not JSON"),
        ({"body": b"\x00"}, "not JSON"),
        ({"body": "{}".encode("utf-16")}, "not JSON"),
        ({"body": "{}".encode("utf-32")}, "not JSON"),
        ({"body": b"\xef\xbb\xbf{}"}, "not JSON"),
        ({"body": b"NaN"}, "not JSON"),
        ({"body": b"[-Infinity]"}, "not JSON"),
        ({"body": b"1e400"}, "not JSON"),
        ({"body": b'"\\ud800"'}, "not JSON"),
        ({"body": b'{"\\udfff": 1}'}, "not JSON"),
    ],
)
def test_what_cannot_be_read_is_undecodable_with_the_reason(changes, reason):
    with pytest.raises(Undecodable, match=reason):
        read(message(**changes), 1000)


@table(
    ("body", "reason"),
    [(b"1" * 5000, "out of range"), (b"[" * 100_000 + b"]" * 100_000, "nested too deeply")],
)
def test_what_would_exhaust_python_is_undecodable_with_the_reason(body, reason):
    with pytest.raises(Undecodable, match=reason):
        read(message(body=body), 10**7)


def test_a_body_of_exactly_the_limit_is_read():
    assert read(message(body=b'"' + b"x" * 998 + b'"'), 1000).payload == "x" * 998


@table(
    ("value", "expected"),
    [
        (3, 3),
        ("3", 3),
        ("007", 7),
        (2**63 - 1, 2**63 - 1),
        (0, 0),
        (-1, 0),
        (2**63, 0),
        (10**400, 0),
        ("9" * 19, 0),
        ("-1", 0),
        ("٣", 0),
        ("", 0),
        (True, 0),
        (3.0, 0),
        (None, 0),
        (b"3", 0),
        ([3], 0),
        (Decimal(3), 0),
        (NOON, 0),
    ],
)
def test_a_header_is_a_number_or_0(value, expected):
    assert message(headers={"n": value}).number("n") == expected
    assert message().number("n") == 0


@table(
    ("value", "expected"),
    [("a", "a"), ("x" * 300, "x" * 255), ("a\x00", "a�"), (SURROGATE, "?"), (b"a", ""), (3, "")],
)
def test_a_header_is_text_that_fits_a_column_or_nothing(value, expected):
    assert message(headers={"t": value}).text("t") == expected


@table("huge", [2**31, 2**40, 2**63 - 1, "9" * 18])
def test_counters_fit_an_integer_column_and_leave_room_to_grow(huge):
    headers = {RETRY_COUNT: huge, REDRIVEN_COUNT: huge, VERSION: huge}

    counted = message(headers=headers)

    assert max(counted.attempt, counted.round, counted.version) <= 2**30 + 1


def test_without_headers_it_is_the_first_attempt_of_the_first_version_and_round():
    assert (message().attempt, message().version, message().round) == (1, 1, 0)
    assert (message().subscription, message().not_before, message().last_sent_at) == (
        "",
        None,
        None,
    )


@table("value", [10**400, 2**63 - 1, 10**18, -5, "soon", None, 1.5])
def test_a_not_before_that_is_no_time_is_none(value):
    assert message(headers={NOT_BEFORE: value}).not_before is None


def test_it_was_last_sent_when_it_last_had_a_reason_to_arrive():
    due, redriven = NOON + timedelta(days=1), NOON + timedelta(days=2)
    delayed = {NOT_BEFORE: int(due.timestamp() * 1000)}

    assert message(sent_at=NOON).last_sent_at == NOON
    assert message(sent_at=NOON, headers=delayed).last_sent_at == due
    headers = {**delayed, REDRIVEN_AT: redriven.replace(tzinfo=None).isoformat()}
    assert message(sent_at=NOON, headers=headers).last_sent_at == redriven


BROKERS_OWN = [
    "x-death", "X-Death", "x-death-count", "x-first-death-queue", "x-last-death-reason",
    "x-delivery-count", "x-acquired-count", "CC", "BCC", "cc",
]  # fmt: skip


def test_a_copy_leaves_out_what_the_broker_wrote_or_would_act_on():
    headers = {"team": "red", VERSION: 2, **dict.fromkeys(BROKERS_OWN, "x")}
    original = message(headers=headers, exchange="shop.events", routing_key="order.placed")

    copy = original.copy_for("shop.orders", **{RETRY_COUNT: 1, SUBSCRIPTION: "charge"})

    assert copy.headers == {
        "team": "red",
        VERSION: 2,
        RETRY_COUNT: 1,
        SUBSCRIPTION: "charge",
        "x-original-exchange": "shop.events",
        "x-original-routing-key": "order.placed",
        "x-original-queue": "shop.orders",
    }
    assert original.headers == headers


def test_a_copy_that_lives_on_does_not_say_how_the_first_one_ended():
    ended = message(headers={"x-final-error": "E: no", "X-Final-Kind": "failed", "team": "red"})

    assert set(ended.copy_for("q").headers) & {"x-final-error", "X-Final-Kind"} == set()
    assert message(id="", headers={"x-final-error": "no"}).identified().id == (
        message(id="").identified().id
    )


def test_a_copy_of_a_copy_remembers_where_the_first_one_was_published():
    first = message(exchange="shop.events", routing_key="order.placed").copy_for("a")
    moved = message(headers=first.headers, exchange="", routing_key="a")

    again = moved.copy_for("b")

    assert again.headers["x-original-exchange"] == "shop.events"
    assert again.headers["x-original-routing-key"] == "order.placed"
    assert again.headers["x-original-queue"] == "b"


def test_a_usable_id_is_kept():
    assert message(id="order-7").identified().id == "order-7"


@table("unusable", ["", "x" * 256, "\x00", SURROGATE])
def test_an_unusable_id_is_replaced_by_one_made_of_the_message(unusable):
    made = message(id=unusable).identified().id

    assert made.startswith("sha256:")
    assert made == message(id=unusable, headers={}).identified().id
    assert made != message(id=unusable, body=b"other").identified().id
    assert made != message(id=unusable, headers={"a": 1}).identified().id


def test_an_id_made_of_the_message_is_the_same_on_every_delivery():
    first = message(id="", headers={"a": 1})
    again = message(id="", headers={"x-delivery-count": 2, "a": 1})

    assert first.identified().id == again.identified().id


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.decimals(),
    st.datetimes(timezones=st.just(UTC)), st.text(alphabet="\ud800\udfff\x00a"),
    st.just(10**400),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
OUR_HEADERS = [
    RETRY_COUNT, REDRIVEN_COUNT, REDRIVEN_AT, NOT_BEFORE, VERSION, SUBSCRIPTION,
    "x-original-routing-key", "eventbus-key",
]  # fmt: skip
TIMES = st.datetimes(timezones=st.timezones()).map(datetime.isoformat) | st.sampled_from(
    ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "9999-W52-7", "24:00", "2026-01-01"]
)
HEADERS = st.dictionaries(st.sampled_from(OUR_HEADERS) | st.text(), VALUES | TIMES, max_size=6)
ANY_TEXT = st.text() | st.text(alphabet="\ud800\x00a")
MESSAGES = st.builds(
    Message,
    id=ANY_TEXT,
    type=ANY_TEXT,
    body=st.binary() | st.sampled_from([b"{}", b"[" * 5000, b"1e400"]),
    content_type=ANY_TEXT | st.just("application/json"),
    sent_at=st.none() | st.datetimes(timezones=st.timezones()),
    headers=HEADERS,
    routing_key=ANY_TEXT,
)


@settings(deadline=None, max_examples=150)
@given(MESSAGES)
def test_no_message_makes_us_raise_anything_but_undecodable(received):
    with suppress(Undecodable):
        read(received, 1000)
    assert received.attempt >= 1
    assert received.round >= 0
    assert received.version >= 1
    assert received.not_before is None or received.not_before.tzinfo
    assert received.last_sent_at is None or received.last_sent_at.tzinfo
    assert isinstance(received.topics, tuple)
    assert received.subscription == storable(received.subscription, 255)
    assert 0 < len(received.identified().id.encode()) <= 255
    assert received.copy_for("q", **{RETRY_COUNT: 1}).attempt == 2


def test_headers_nested_beyond_all_reason_are_cut_and_not_fatal():
    deep = message(id="", headers=nested(50_000))

    assert deep.identified().id.startswith("sha256:")
    assert str(storable_json(deep.headers)).count("a") < 200


NASTY = [
    {"nul": "a\x00b", "\x00": 1},
    {"surrogate": SURROGATE, SURROGATE: "\udfff"},
    {"nan": float("nan"), "inf": [float("inf"), float("-inf")]},
    {"decimal": Decimal("NaN"), "big": 10**5000, "negative": -(10**5000), "long": 10**300},
    {"bytes": b"\xff\x00", "date": NOON, "tuple": (1, None, True)},
    {1: "a", None: "b", b"c": "d"},
    nested(5_000),
]


@pytest.mark.django_db
@table("nasty", NASTY)
def test_every_database_takes_what_was_made_storable(nasty):
    made = storable_json(nasty)

    letter = DeadLetter.objects.create(
        queue="q", message_id="1", body=b"\xff\x00", kind="failed", payload=made, headers=made
    )
    letter.refresh_from_db()

    assert letter.payload == letter.headers == made


UNREASONABLE = [
    {RETRY_COUNT: 2**40},
    {REDRIVEN_COUNT: 2**40},
    {VERSION: 2**40},
    {NOT_BEFORE: 10**400},
    {NOT_BEFORE: 2**62},
    {REDRIVEN_AT: "0001-01-01T00:00:00+23:59"},
    {"x-redriven-dead-letter": 2**62},
    {"eventbus-key": "x" * 300, "eventbus-causation": "x" * 300},
    {SUBSCRIPTION: "x" * 300},
    {SUBSCRIPTION: ["x"]},
    {"deep": nested(90)},
]


def test_messages_with_headers_beyond_all_reason_are_parked_and_the_next_one_handled(bus):
    @bus.subscribe("order.*", name="s", retry=["1s"])
    def handler(event):
        if event.type == "order.placed":
            raise RetryLater(after="7s")

    sent = [bus.put(headers=headers).id for headers in UNREASONABLE]
    bus.drain()
    bus.put(type="order.paid")

    letters = DeadLetter.objects.filter(state="open").values_list("message_id", flat=True)
    assert sorted(letters) == sorted(sent)
    assert bus.consume() == [Handled()]


@settings(deadline=None, max_examples=200)
@given(st.text() | st.text(alphabet="\ud800\x00ä"), st.integers(0, 20))
def test_storable_text_is_unicode_without_nul_and_within_its_limit(text, limit):
    made = storable(text, limit)

    assert "\x00" not in made
    assert made.encode().decode() == made
    assert len(made) <= limit


def test_ids_have_the_version_the_variant_and_the_time_of_uuid7():
    before = int(datetime.now(UTC).timestamp() * 1000)

    made = uuid7()

    assert (made.version, made.variant) == (7, RFC_4122)
    assert before - 1 <= made.int >> 80 <= before + 60_000


def test_ids_of_one_thread_are_in_order_even_within_a_millisecond():
    ids = [uuid7() for _ in range(20_000)]

    assert all(earlier < later for earlier, later in pairwise(ids))
    assert ids == sorted(ids, key=str)


def test_ids_stay_in_order_while_the_clock_stands_still_or_runs_backwards():
    ticks = [_next_tick(0) for _ in range(5_000)]

    assert all(earlier < later for earlier, later in pairwise(ticks))
    assert all(sequence <= 0xFFF for _, sequence in ticks)
    assert ticks[-1] < divmod(uuid7().int >> 64, 2**16)


def test_ids_of_many_threads_are_each_in_order_and_never_the_same():
    made: list[list[UUID]] = [[] for _ in range(8)]
    threads = [
        threading.Thread(target=lambda ids=ids: ids.extend(uuid7() for _ in range(2_000)))
        for ids in made
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({each for ids in made for each in ids}) == 8 * 2_000
    assert all(ids == sorted(ids) for ids in made)


@table(
    "written",
    ["9999-12-31T23:59:59+00:00", "0001-01-01T00:00:00+14:00", "2999-01-01T00:00:00+00:00", "soon"],
)
def test_a_re_drive_at_an_impossible_time_has_no_time(written):
    assert message(headers={REDRIVEN_AT: written}).redriven_at is None


@table("milliseconds", [253_402_300_799_000, 2**63 - 1, -1, True])
def test_an_event_is_not_put_off_to_the_end_of_the_calendar(milliseconds):
    assert message(headers={NOT_BEFORE: milliseconds}).not_before is None


@table(("written", "tries"), [(3, 3), (2**60, 100), (-1, 0), ("many", 0)])
def test_a_re_drive_gives_a_message_a_hundred_tries_at_most(written, tries):
    assert message(headers={REDRIVEN_TRIES: written}).redriven_tries == tries
