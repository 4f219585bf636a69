"""Typed events: validated on both ends, tolerant of newer writers, upgradable from older ones."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_eventbus import Event, Meta
from django_eventbus.events.formats import read
from django_eventbus.events.message import Message
from django_eventbus.events.payload import body_of
from django_eventbus.exceptions import InvalidPayload, UnknownVersion
from tests.support.tables import table

LIMIT = 10**6
EventType = type(Event)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Size(IntEnum):
    S = 1
    L = 2


class Line(msgspec.Struct, frozen=True):
    sku: str
    price: Decimal
    quantity: Annotated[int, msgspec.Meta(ge=1)] = 1


class OrderPlaced(Event, type="order.placed", version=3):
    order_id: int
    total: Decimal
    placed_at: datetime
    due_on: date
    colour: Colour
    size: Size
    reference: UUID
    lines: list[Line]
    by_sku: dict[str, Line]
    by_number: dict[int, str]
    tags: frozenset[str]
    blob: bytes
    at: time
    took: timedelta
    weight: float
    is_gift: bool
    note: str | None = None
    first: Line | None = None
    extra: Any = None


class Renamed(Event, type="order.renamed", version=2, rename="camel"):
    order_id: int
    note: str = ""

    @classmethod
    def upgrade_from(cls, version: int, payload: Any) -> Any:
        return {"orderId": int(payload["order"]), "note": f"from {version}"}


class Plain(Event, type="order.plain"):
    number: int
    items: list[int] = []


class Special(Plain, type="order.special", version=2):
    colour: Colour = Colour.RED


class Typeless(Plain):
    pass


def meta(event_type: str = "order.plain", version: int = 1) -> Meta:
    return Meta(id="1", type=event_type, version=version)


def received(event: Event) -> Event:
    """Take *event* to bytes and back, as the bus does."""
    message = Message(id="1", type=event.event_type, body=body_of(event, LIMIT))
    payload = read(message, LIMIT).payload
    return type(event).received(payload, meta(event.event_type, event.event_version))


zones = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
lines = st.builds(
    Line,
    sku=st.text(),
    price=st.decimals(allow_nan=False, allow_infinity=False),
    quantity=st.integers(1, 2**63 - 1),
)
orders = st.builds(
    OrderPlaced,
    order_id=st.integers(-(2**70), 2**70),
    total=st.decimals(allow_nan=False, allow_infinity=False),
    placed_at=st.datetimes() | st.datetimes(timezones=zones),
    due_on=st.dates(),
    colour=st.sampled_from(Colour),
    size=st.sampled_from(Size),
    reference=st.uuids(),
    lines=st.lists(lines, max_size=3),
    by_sku=st.dictionaries(st.text(), lines, max_size=3),
    by_number=st.dictionaries(st.integers(-(2**63), 2**63 - 1), st.text(), max_size=3),
    tags=st.frozensets(st.text(), max_size=3),
    blob=st.binary(),
    at=st.times(),
    took=st.timedeltas(),
    weight=st.floats(allow_nan=False, allow_infinity=False),
    is_gift=st.booleans(),
    note=st.none() | st.text(),
    first=st.none() | lines,
    extra=st.recursive(
        st.none() | st.booleans() | st.text() | st.integers(-(2**63), 2**63),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=5,
    ),
)


@settings(deadline=None, max_examples=80)
@given(orders)
def test_what_is_published_is_what_is_received(order):
    copy = received(order)

    assert copy == order
    assert type(copy.total) is Decimal
    assert copy.total.as_tuple() == order.total.as_tuple()
    assert copy.placed_at.utcoffset() == order.placed_at.utcoffset()


@table(
    ("payload", "field"),
    [
        ({}, "number"),
        ({"number": "1"}, "number"),
        ({"number": 1.5}, "number"),
        ({"number": None}, "number"),
        ({"number": True}, "number"),
        ({"number": 1, "items": [1, "2"]}, r"items\[1\]"),
        ([1], "array"),
        (None, "null"),
        ("number", "str"),
    ],
)
def test_a_payload_that_does_not_fit_is_refused_by_the_name_of_the_field(payload, field):
    with pytest.raises(InvalidPayload, match=f"Plain: .*{field}"):
        Plain.received(payload, meta())


def test_a_constraint_on_a_nested_field_is_checked_too():
    with pytest.raises(InvalidPayload, match=r"`int` >= 1 - at `\$\.line\.quantity`"):
        event_with(Line).validated({"line": {"sku": "a", "price": "1", "quantity": 0}})


def event_with(nested: type) -> type[Event]:
    return EventType("Wrapped", (Event,), {"__annotations__": {"line": nested}}, type="a.b")


def test_fields_of_a_newer_writer_are_ignored():
    event = Plain.received({"number": 1, "colour": "red"}, meta())

    assert event == Plain(number=1)


def test_a_missing_field_with_a_default_takes_it_anew_each_time():
    first, second = (Plain.received({"number": 1}, meta()) for _ in range(2))

    assert first.items == second.items == []
    assert first.items is not second.items


def test_an_older_version_is_upgraded_and_then_validated():
    event = Renamed.received({"order": "7"}, meta("order.renamed", 1))

    assert event == Renamed(order_id=7, note="from 1")


def test_an_older_version_without_an_upgrade_is_an_invalid_payload():
    with pytest.raises(InvalidPayload, match=r"version 3.*cannot read version 2.*upgrade_from"):
        OrderPlaced.received({}, meta("order.placed", 2))


def test_an_upgrade_to_something_that_does_not_fit_is_an_invalid_payload():
    class Botched(Event, type="order.botched", version=2):
        number: int

        @classmethod
        def upgrade_from(cls, version: int, payload: Any) -> Any:
            return payload

    with pytest.raises(InvalidPayload, match="number"):
        Botched.received({}, meta("order.botched", 1))


def test_a_newer_version_is_unknown_until_the_consumer_is_deployed():
    with pytest.raises(UnknownVersion, match=r"version 4 is newer than OrderPlaced version 3"):
        OrderPlaced.received({}, meta("order.placed", 4))


def test_only_a_received_event_has_a_meta():
    written, read = Plain(number=1), received(Plain(number=1))

    assert read.meta.id == "1"
    assert not hasattr(written, "meta")
    with pytest.raises(AttributeError, match="This Plain was not received"):
        _ = written.meta


def test_events_are_equal_by_their_fields_whether_received_or_not():
    assert received(Plain(number=1)) == Plain(number=1)
    assert Plain(number=1) != Plain(number=2)
    assert Plain(number=1) != Special(number=1)


def test_an_event_shows_its_fields_and_nothing_else():
    assert repr(received(Plain(number=1))) == "Plain(number=1, items=[])"


def test_an_event_is_written_with_names_and_never_changed():
    with pytest.raises(TypeError):
        Plain(1)
    with pytest.raises(AttributeError):
        Plain(number=1).number = 2


def test_a_subclass_has_the_fields_of_its_parent_and_a_type_of_its_own():
    assert (Special.event_type, Special.event_version) == ("order.special", 2)
    assert (Plain.event_type, Plain.event_version) == ("order.plain", 1)
    assert received(Special(number=1)) == Special(number=1, colour=Colour.RED)


def test_a_subclass_without_a_type_has_none():
    assert (Typeless.event_type, Typeless.event_version) == ("", 1)


@table("name", ["meta", "event_type", "event_version", "received", "validated"])
def test_a_field_that_would_hide_the_events_own_is_refused(name):
    with pytest.raises(TypeError, match=f"cannot have a field '{name}'"):
        EventType("Hiding", (Event,), {"__annotations__": {name: str}}, type="a.b")


@table("version", [0, -1, "1", None, 1.0, 2**31])
def test_a_version_is_a_whole_number_from_1_on(version):
    with pytest.raises(TypeError, match="not a whole number of at least 1"):
        EventType("Odd", (Event,), {}, type="a.b", version=version)


def test_an_option_cannot_take_away_the_place_of_the_meta():
    bare = EventType("Bare", (Event,), {}, type="a.b", dict=False)

    assert bare.received({}, meta("a.b")).meta.type == "a.b"


def test_an_unknown_option_or_a_type_that_is_no_name_is_refused_with_the_class():
    with pytest.raises(TypeError, match=r"Typo has typ=; an Event accepts type= and version="):

        class Typo(Event, typ="a.b"):
            pass

    with pytest.raises(TypeError, match=r"Wild has type='a.\*', which is not a dotted name"):

        class Wild(Event, type="a.*"):
            pass
