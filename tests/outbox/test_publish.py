"""publish() and publish_many(): rows in the caller's transaction, or a refusal by name."""

from __future__ import annotations

import json
import math
from collections import OrderedDict, defaultdict, deque
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import MappingProxyType
from typing import Any
from uuid import UUID

import msgspec
import pytest
from django.core.serializers.json import DjangoJSONEncoder
from django.db import connections, models, transaction
from django.test import override_settings
from django.utils import timezone
from django.utils.connection import ConnectionDoesNotExist
from django.utils.functional import lazystr
from django.utils.safestring import mark_safe

from django_eventbus import Event, publish, publish_many
from django_eventbus.events.event import Meta, cause
from django_eventbus.exceptions import InvalidEvent, NoTransaction
from django_eventbus.models import OutboxEvent
from django_eventbus.outbox.outbox_rows import write_addressed_row
from django_eventbus.signals import event_handled
from tests.shop.models import Parent
from tests.support.tables import table

pytestmark = pytest.mark.both_databases

SURROGATE = "\ud800"


class OrderPlaced(Event, type="order.placed", version=2):
    order_id: int
    total: Decimal = Decimal(0)
    extra: Any = None


class Typeless(Event):
    pass


class Colour(Enum):
    RED = "red"


class Half(Enum):
    HALF = 0.5


class Opaque(Enum):
    IT = object()


class Status(models.TextChoices):
    PAID = "paid", "Paid"


class Line(msgspec.Struct):
    price: Any


@dataclass
class Box:
    content: Any


class Number(int):
    pass


class Share(float):
    pass


def body(**filters) -> Any:
    return json.loads(bytes(OutboxEvent.objects.get(**filters).body))


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def setting(**given):
    return override_settings(EVENTBUS={"SERVICE": "shop-orders", **given})


# In the caller's transaction


@pytest.mark.django_db(transaction=True)
def test_a_rolled_back_transaction_leaves_no_event():
    with suppress(ZeroDivisionError), transaction.atomic():
        Parent.objects.create()
        publish("order.placed")
        publish_many([("order.placed", {}), OrderPlaced(order_id=1)])
        _ = 1 / 0

    assert not OutboxEvent.objects.exists()
    assert not Parent.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_rolled_back_savepoint_takes_its_event_with_it():
    with transaction.atomic():
        publish("order.placed")
        with suppress(ZeroDivisionError), transaction.atomic():
            publish("order.paid")
            _ = 1 / 0

    assert [row.type for row in OutboxEvent.objects.all()] == ["order.placed"]


@pytest.mark.django_db(transaction=True)
def test_an_event_published_outside_a_transaction_commits_by_itself():
    publish("order.placed")

    with transaction.atomic():
        transaction.set_rollback(True)
    assert OutboxEvent.objects.count() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("write", [lambda: publish("a.b"), lambda: publish_many([("a.b", {})])])
@setting(REQUIRE_TRANSACTION=True)
def test_outside_a_transaction_publishing_is_an_error_if_the_setting_says_so(write):
    with pytest.raises(NoTransaction, match=r"same transaction\.atomic\(\) block"):
        write()
    with transaction.atomic():
        write()

    assert OutboxEvent.objects.count() == 1


@pytest.fixture
def other(transactional_db):
    """A second connection to the same database; Django's tests let it through by its alias."""
    connections.settings["other"] = connections.settings["default"]
    connections["other"] = connections["default"].copy()
    yield "other"
    connections["other"].close()
    del connections["other"]
    del connections.settings["other"]


def test_using_names_the_database_whose_transaction_it_is(other):
    with transaction.atomic(using=other):
        publish("order.placed", using=other)
        publish_many([("order.placed", {})], using=other)
        transaction.set_rollback(True, using=other)
    publish("order.paid", using=other)

    assert [row.type for row in OutboxEvent.objects.all()] == ["order.paid"]


@setting(REQUIRE_TRANSACTION=True)
def test_a_transaction_on_another_database_does_not_count(other):
    with transaction.atomic(), pytest.raises(NoTransaction):
        publish("order.placed", using=other)


@pytest.mark.django_db
def test_an_unknown_database_is_an_error():
    with pytest.raises(ConnectionDoesNotExist):
        publish("order.placed", using="nowhere")


# What a row says


@pytest.mark.django_db
@setting()
def test_a_row_says_what_the_relay_and_the_consumer_need_to_know():
    before = timezone.now()

    made = publish("order.placed", {"id": 1}, key=7, headers={"team": "red"}, correlation_id="r")

    row = OutboxEvent.objects.get()
    assert (row.message_id, row.type, row.version, row.state) == (
        str(made),
        "order.placed",
        1,
        "ready",
    )
    assert (row.source, row.exchange, row.routing_key) == (
        "shop-orders",
        "shop.events",
        "order.placed",
    )
    assert (row.key, row.correlation_id, row.causation_id) == ("7", "r", "")
    assert row.headers == {"team": "red", "eventbus-version": 1, "eventbus-key": "7"}
    assert before <= row.sent_at == row.created_at <= timezone.now()
    assert (row.due_at, row.published_at, row.queue, row.subscription) == (None, None, "", "")
    assert row.content_type == "application/json"


@pytest.mark.django_db
def test_a_typed_event_brings_its_type_version_and_fields():
    publish(OrderPlaced(order_id=1, total=Decimal("9.90")))

    row = OutboxEvent.objects.get()
    assert (row.type, row.version, row.headers["eventbus-version"]) == ("order.placed", 2, 2)
    assert body() == {"order_id": 1, "total": "9.90", "extra": None}


@pytest.mark.django_db
def test_ids_are_uuids_of_version_7_in_the_order_of_publishing():
    ids = [publish("order.placed") for _ in range(3)]
    ids += publish_many([("order.placed", {})] * 3)

    assert {each.version for each in ids} == {7}
    assert ids == sorted(ids)
    rows = OutboxEvent.objects.order_by("id").values_list("message_id", flat=True)
    assert list(rows) == [str(each) for each in ids]


@pytest.mark.django_db
@table("delay", ["5m", 300, timedelta(minutes=5)])
def test_a_delayed_event_is_scheduled_and_carries_its_time(delay):
    publish("order.placed", delay=delay)

    row = OutboxEvent.objects.get()
    assert row.state == "scheduled"
    assert row.due_at == row.created_at + timedelta(minutes=5)
    assert row.headers["eventbus-not-before"] == int(row.due_at.timestamp() * 1000)
    assert row.message().not_before <= row.due_at


@pytest.mark.django_db
@table(
    ("key", "expected"),
    [(None, ""), (0, "0"), ("", ""), (UUID(int=1), str(UUID(int=1))), ("ä" * 127, "ä" * 127)],
)
def test_a_key_is_anything_that_can_be_written(key, expected):
    publish("order.placed", key=key)

    assert OutboxEvent.objects.get().key == expected


@pytest.mark.django_db
@setting(SHARDS=4)
def test_events_of_one_key_share_a_shard_and_others_spread():
    publish_many([("a.b", {})] * 20, key="same")
    publish_many([("a.c", {})] * 200)

    shards = {
        each: set(OutboxEvent.objects.filter(type=each).values_list("shard", flat=True))
        for each in ("a.b", "a.c")
    }
    assert len(shards["a.b"]) == 1
    assert shards["a.c"] == {0, 1, 2, 3}


@pytest.mark.django_db
def test_an_event_without_a_cause_correlates_with_itself():
    made = publish("order.placed")

    assert OutboxEvent.objects.get().correlation_id == str(made)


@pytest.mark.django_db
@pytest.mark.parametrize("given", [None, UUID(int=5), "r"])
def test_a_correlation_id_may_be_none_or_a_uuid_or_text(given):
    made = publish("order.placed", correlation_id=given)

    assert OutboxEvent.objects.get().correlation_id == str(given or made)


def test_a_handlers_events_inherit_the_correlation_and_name_their_cause(bus):
    @bus.subscribe("order.placed")
    def handler(event):
        publish("order.paid")
        publish("order.audited", correlation_id="own")

    placed = publish("order.placed", correlation_id="r")
    bus.drain()
    publish("order.late")

    rows = {row.type: row for row in OutboxEvent.objects.all()}
    assert (rows["order.paid"].correlation_id, rows["order.paid"].causation_id) == (
        "r",
        str(placed),
    )
    assert rows["order.paid"].headers["eventbus-causation"] == str(placed)
    assert (rows["order.audited"].correlation_id, rows["order.audited"].causation_id) == (
        "own",
        str(placed),
    )
    assert rows["order.late"].causation_id == ""


def fail(event):
    raise ValueError


def publish_at_commit(event):
    transaction.on_commit(lambda: publish("order.paid"))


@pytest.mark.parametrize(
    ("handler", "options"),
    [
        (publish_at_commit, {}),
        (fail, {"debug_handler": lambda event: publish("order.paid")}),
        (
            fail,
            {"retry": ["1s"], "tries": 2, "on_retry": lambda error, event: publish("order.paid")},
        ),
        (fail, {"tries": 1, "on_parked": lambda error, event: publish("order.paid")}),
    ],
    ids=["on_commit", "debug_handler", "on_retry", "on_parked"],
)
def test_so_does_what_is_published_around_a_handler(bus, handler, options):
    bus.subscribe("order.placed", **options)(handler)

    placed = publish("order.placed", correlation_id="r", debug=True)
    bus.drain()

    paid = OutboxEvent.objects.get(type="order.paid")
    assert (paid.correlation_id, paid.causation_id) == ("r", str(placed))


def test_so_does_what_a_receiver_of_an_outcome_publishes(bus):
    def on_handled(meta, **kwargs):
        if meta.type == "order.placed":
            publish("order.paid")

    bus.subscribe("order.placed")(print)
    placed = publish("order.placed")
    event_handled.connect(on_handled)
    try:
        bus.drain()
    finally:
        event_handled.disconnect(on_handled)

    assert OutboxEvent.objects.get(type="order.paid").causation_id == str(placed)


@pytest.mark.django_db
@table(("correlation_id", "expected"), [("", "foreign"), ("a\x00", "a�"), ("x" * 300, "x" * 255)])
def test_a_cause_with_a_correlation_that_no_column_holds_is_followed_all_the_same(
    correlation_id, expected
):
    token = cause.set(Meta(id="foreign", type="a.b", correlation_id=correlation_id))
    try:
        publish("order.placed")
    finally:
        cause.reset(token)

    assert OutboxEvent.objects.get().correlation_id == expected


# publish_many


@pytest.mark.django_db
def test_many_events_are_typed_or_pairs_with_a_key_of_their_own():
    def key(event):
        return event.order_id if isinstance(event, OrderPlaced) else event[1]["id"]

    ids = publish_many((e for e in [OrderPlaced(order_id=1), ("a.b", {"id": 2})]), key=key)

    rows = OutboxEvent.objects.order_by("id")
    assert [(row.message_id, row.type, row.key) for row in rows] == [
        (str(ids[0]), "order.placed", "1"),
        (str(ids[1]), "a.b", "2"),
    ]


@pytest.mark.django_db
def test_no_events_are_published_as_none():
    assert publish_many([]) == []


@pytest.mark.django_db(transaction=True)
def test_many_events_are_all_written_or_none():
    events = [("a.b", {})] * 700 + [("a.b", {"price": math.nan})]

    with pytest.raises(InvalidEvent, match=r"payload\.price is nan"):
        publish_many(events)

    assert not OutboxEvent.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_more_events_than_fit_one_statement_are_written_all_the_same():
    assert len(set(publish_many([("a.b", {})] * 1_200, delay="1m", headers={"n": 1}))) == 1_200

    assert OutboxEvent.objects.filter(state="scheduled", headers__n=1).count() == 1_200


# Payloads


@pytest.mark.django_db
@table(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (2**53, 2**53),
        (10**30, 10**30),
        (Decimal("9.90"), "9.90"),
        (Decimal("1E+400"), "1E+400"),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, 3, 4, 5), "2026-01-02T03:04:05"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00Z"),
        (time(1, 2, 3), "01:02:03"),
        (timedelta(days=1, seconds=2), "P1DT2S"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (lazystr("later"), "later"),
        (mark_safe("<b>"), "<b>"),
        (Number(3), 3),
        (Share(0.5), 0.5),
        (Colour.RED, "red"),
        (Half.HALF, 0.5),
        (Status.PAID, "paid"),
        (Line(price=Decimal(1)), {"price": "1"}),
        (Box(content=[Line(price=None)]), {"content": [{"price": None}]}),
        (OrderedDict(a=1), {"a": 1}),
        (defaultdict(list, a=[1]), {"a": [1]}),
        (MappingProxyType({"a": 1}), {"a": 1}),
        ((1, 2), [1, 2]),
        ({3}, [3]),
        (b"\x00\xff", "AP8="),
        ({1: "a", UUID(int=1): "b"}, {"1": "a", "00000000-0000-0000-0000-000000000001": "b"}),
        ({lazystr("k"): 1, mark_safe("s"): 2, Colour.RED: 3}, {"k": 1, "s": 2, "red": 3}),
        ("\x00", "\x00"),
        ("🦆", "🦆"),
    ],
)
def test_a_payload_holds_what_django_and_msgspec_write_as_json(value, expected):
    publish("order.placed", {"value": value})

    assert body() == {"value": expected}


def test_everything_that_djangos_encoder_writes_is_taken_here_too():
    known = [
        datetime.now(UTC),
        date.today(),
        time(),
        timedelta(1),
        Decimal(1),
        UUID(int=1),
        lazystr(""),
    ]

    for value in known:
        assert DjangoJSONEncoder().encode(value)
        assert publishable(value)


def publishable(value) -> bytes:
    from django_eventbus.events.payload import body_of

    return body_of(value, 1000)


@pytest.mark.django_db
@table(("payload", "expected"), [(None, {}), ([], []), (0, 0), ("", ""), ({}, {})])
def test_a_payload_may_be_any_json_and_is_an_object_if_none_is_given(payload, expected):
    publish("order.placed", payload)

    assert body() == expected


# Refusals: by name, before anything is written


def refused(match: str, *args: Any, **options: Any) -> None:
    with pytest.raises(InvalidEvent, match=match) as refusal:
        publish(*args, **options)
    assert len(str(refusal.value)) < 500
    assert not OutboxEvent.objects.exists()


@pytest.mark.django_db
@table(
    ("payload", "message"),
    [
        (math.nan, "payload is nan"),
        ({"a": math.nan}, r"payload\.a is nan"),
        ({"a": [1, {"b": math.inf}]}, r"payload\.a\[1\]\.b is inf"),
        ({"a": -math.inf}, r"payload\.a is -inf"),
        ({"a": Decimal("NaN")}, r"payload\.a is NaN"),
        ({"a": Decimal("sNaN")}, r"payload\.a is sNaN"),
        ({"a": Decimal("-Infinity")}, r"payload\.a is -Infinity"),
        (Line(price=math.nan), r"payload\.price is nan"),
        (Box(content=[Decimal("NaN")]), r"payload\.content\[0\] is NaN"),
        ({"a": f"x{SURROGATE}"}, r"payload\.a contains a lone surrogate"),
        ({"a": {SURROGATE: 1}}, r"payload\.a, a key, contains a lone surrogate"),
        ({"a": {1.5: 1}}, r"payload\.a has the key 1\.5"),
        ({"a": {None: 1}}, r"payload\.a has the key None"),
        ({"a": {True: 1}}, r"payload\.a has the key True"),
        ({"a": {(1, 2): 1}}, r"payload\.a has the key \(1, 2\)"),
        (
            {"a": [0, object()]},
            r"payload\.a\[1\] cannot be sent as JSON: object is not a JSON type",
        ),
        ({"a": deque()}, r"payload\.a cannot be sent as JSON: deque"),
        ({"a": (n for n in ())}, r"payload\.a cannot be sent as JSON: generator"),
        ({"a": Opaque.IT}, r"payload\.a cannot be sent as JSON"),
        ({"a": 1j}, r"payload\.a cannot be sent as JSON: complex"),
        (object(), "payload cannot be sent as JSON: object"),
        (Line(price=Box(content=object())), r"payload\.price\.content cannot be sent as JSON"),
        ({"a": 10**5000}, r"payload\.a cannot be sent as JSON: Exceeds the limit"),
    ],
)
def test_a_payload_that_json_cannot_hold_is_refused_by_the_path_of_its_field(payload, message):
    refused(message, "order.placed", payload)


@pytest.mark.django_db
@table("levels", [101, 700, 5_000, 100_000])
@table("inside", [lambda value: {"a": value}, lambda value: Line(price=value)])
def test_nesting_beyond_all_reason_is_refused(levels, inside):
    refused(r"payload.*nested", "order.placed", inside(nested(levels)))


@pytest.mark.django_db
def test_nesting_within_reason_is_published():
    publish("order.placed", nested(100))

    assert body() == nested(100)


@pytest.mark.django_db
@setting(MAX_BODY_BYTES=20)
def test_a_body_may_have_exactly_the_limit_in_bytes():
    publish("order.placed", "ä" * 9)
    OutboxEvent.objects.all().delete()

    refused("payload has 22 bytes as JSON; MAX_BODY_BYTES is 20", "order.placed", "ä" * 10)
    refused("payload has 21 bytes as JSON", "order.placed", "x" * 19)


@pytest.mark.django_db
@table(
    "event_type",
    [
        "", ".", "a.", ".a", "a..b", "order placed", "order.placed\n", "order.*", "#", "größe",
        "a\x00b", SURROGATE, "x" * 256,
    ],
)  # fmt: skip
def test_a_type_that_is_no_dotted_name_is_refused(event_type):
    refused("is not a dotted name", event_type, {})


@pytest.mark.django_db
@table("event_type", ["order", "order.placed", "A-1._b", "x" * 255])
def test_a_type_is_a_dotted_name(event_type):
    publish(event_type)

    assert OutboxEvent.objects.get().type == event_type


@pytest.mark.django_db
@table("event", [OrderPlaced, None, 7, {"type": "a.b"}, object(), ("a.b",), ("a.b", {}, 1)])
def test_what_is_no_event_is_refused(event):
    refused("is neither an Event nor a type and a payload", event)
    with pytest.raises(InvalidEvent, match="neither an Event nor"):
        publish_many([("a.b", {}), event])
    assert not OutboxEvent.objects.exists()


@pytest.mark.django_db
def test_text_is_no_pair_of_a_type_and_a_payload():
    with pytest.raises(InvalidEvent, match="'ab' is neither an Event nor"):
        publish_many(["ab"])


@pytest.mark.django_db
@table(
    ("event", "message"),
    [
        (OrderPlaced(order_id="1"), r"OrderPlaced: Expected `int`, got `str` - at `\$\.order_id`"),
        (OrderPlaced(order_id=1, total="ten"), r"\$\.total"),
        (OrderPlaced(order_id=1, total=Decimal("NaN")), r"payload\.total is NaN"),
        (OrderPlaced(order_id=1, extra=object()), r"payload\.extra cannot be sent"),
        (OrderPlaced(order_id=1, extra={"a": math.inf}), r"payload\.extra\.a is inf"),
        (Typeless(), "Typeless has no type: add type= to its class"),
    ],
)
def test_a_typed_event_with_a_wrong_field_is_refused_by_its_name(event, message):
    refused(message, event)


@pytest.mark.django_db
def test_a_typed_event_takes_no_payload_beside_its_fields():
    refused("Do not pass a payload", OrderPlaced(order_id=1), {"order_id": 2})


@pytest.mark.django_db
@table(
    "name",
    ["x-retry-count", "X-Anything", "x-", "eventbus-row", "EventBus-Key", "CC", "cc", "Bcc"],
)
def test_a_header_of_the_bus_or_the_broker_is_refused_in_any_case(name):
    refused(f"header '{name}' is reserved", "order.placed", headers={name: "1"})


@pytest.mark.django_db
@table(
    ("headers", "message"),
    [
        ({"a": None}, "header 'a' is a NoneType"),
        ({"a": 1.5}, "header 'a' is a float"),
        ({"a": b"x"}, "header 'a' is a bytes"),
        ({"a": ["x"]}, "header 'a' is a list"),
        ({"a": {}}, "header 'a' is a dict"),
        ({"a": 2**63}, "header 'a' does not fit 64 bits"),
        ({"a": -(2**63) - 1}, "header 'a' does not fit 64 bits"),
        ({"a": "\x00"}, "header 'a' contains a NUL"),
        ({"a": SURROGATE}, "header 'a' contains a NUL or a lone surrogate"),
        ({"a\x00": "x"}, "contains a NUL"),
        ({SURROGATE: "x"}, "lone surrogate"),
        ({"": "x"}, "is not a name of at most 255 bytes"),
        ({"ä" * 128: "x"}, "is not a name of at most 255 bytes"),
        ({1: "x"}, "header 1 is not a name"),
        ([("a", "x")], "headers is a list, not a dict"),
        ("a", "headers is a str, not a dict"),
    ],
)
def test_a_header_that_no_broker_would_carry_is_refused_by_its_name(headers, message):
    refused(message, "order.placed", headers=headers)


@pytest.mark.django_db
def test_headers_are_text_whole_numbers_and_bools():
    headers = {
        "a": "ä",
        "b": -(2**63),
        "c": True,
        "d": Status.PAID,
        "xylophone": "",
        "x": 2**63 - 1,
    }

    publish("order.placed", headers=headers)

    assert OutboxEvent.objects.get().headers == {**headers, "eventbus-version": 1}


@pytest.mark.django_db
@table("name", ["key", "correlation_id"])
@table("value", ["x" * 256, "ä" * 128, "a\x00", SURROGATE])
def test_a_key_or_correlation_that_no_column_holds_is_refused_by_its_name(name, value):
    refused(f"{name} is longer than 255 bytes or contains a NUL", "order.placed", **{name: value})


@pytest.mark.django_db
@table("delay", [-1, "soon", timedelta(seconds=-1), math.nan, 1e300, "1000000d"])
def test_a_delay_that_is_none_is_refused(delay):
    refused("delay: .* is not a duration", "order.placed", delay=delay)


# Addressed rows


@pytest.mark.django_db
def test_an_addressed_row_goes_to_one_queue_and_carries_what_the_message_carried():
    publish("order.placed", {"a": 1}, key="k")
    message = OutboxEvent.objects.get().message()

    row = write_addressed_row(message, queue="q", subscription="s", due_at=None, using="default")

    assert (row.message_id, row.body, row.key) == (message.id, message.body, "k")
    assert (row.exchange, row.routing_key, row.queue, row.subscription) == ("", "q", "q", "s")
    assert (row.state, row.is_addressed) == ("ready", True)
