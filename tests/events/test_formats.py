"""Formats: what one writes every one reads, and what is wrong is told all at once."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal

import msgspec
import pytest
from django.test import override_settings
from hypothesis import HealthCheck, given, strategies
from hypothesis import settings as hypothesis_settings

from django_eventbus import Event, handle_command, publish, send_command
from django_eventbus.dead_letters.query import matching
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.events.formats import blamed, read, recognised, with_payload, write
from django_eventbus.events.message import (
    CAUSATION,
    DEBUG,
    FORMAT,
    KEY,
    TRACEPARENT,
    TRACESTATE,
    VERSION,
    Message,
    uuid7,
)
from django_eventbus.exceptions import InvalidEvent, Undecodable
from django_eventbus.models import DeadLetter, InboxRecord, OutboxEvent
from django_eventbus.redrive.edited_message import Edit
from django_eventbus.redrive.letters import edit_and_redrive, redrive
from django_eventbus.subscriptions.outcomes import Park
from django_eventbus.subscriptions.queue_specs import queue_specs
from tests.support.tables import table

LIMIT = 100_000
FORMATS = ("native", "envelope", "cloudevents")
SENT = datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)


def eventbus(**values):
    return override_settings(EVENTBUS={"SERVICE": "shop-tests", **values})


class OrderPlaced(Event, type="order.placed", version=3):
    order_id: int
    total: Decimal
    note: str | None = None


def message(**changes):
    values = {"id": str(uuid7()), "type": "order.placed", "source": "shop", "sent_at": SENT}
    return Message(**{**values, "body": b"{}", **changes})


def enveloped(**parts):
    """Return a body as nano-service sends it."""
    whole = {"meta": {}, "payload": {"id": 1}, "status": {}, "system": {"is_debug": False}}
    return json.dumps({**whole, **parts}).encode()


def reasons(message, limit=LIMIT):
    with pytest.raises(Undecodable) as caught:
        read(message, limit)
    return str(caught.value).split("; ")


# What is written is read.

TEXT = strategies.text(strategies.characters(exclude_categories=("Cs",)), max_size=20)
SCALARS = (
    strategies.none()
    | strategies.booleans()
    | strategies.integers(-(2**63), 2**63)
    | strategies.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
JSON = strategies.recursive(
    SCALARS,
    lambda inner: (
        strategies.lists(inner, max_size=4) | strategies.dictionaries(TEXT, inner, max_size=4)
    ),
    max_leaves=20,
)
#: Also what looks like an envelope and is none.
PAYLOADS = (
    strategies.dictionaries(TEXT, JSON, max_size=4)
    | strategies.lists(JSON, max_size=4)
    | strategies.dictionaries(
        strategies.sampled_from(["meta", "payload", "status", "system"]), JSON, min_size=3
    )
)


@pytest.mark.parametrize("name", FORMATS)
@hypothesis_settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(payload=PAYLOADS, is_debug=strategies.booleans(), key=TEXT, header=SCALARS)
def test_what_a_format_writes_is_read_as_it_was(name, payload, is_debug, key, header):
    headers = {VERSION: 3, KEY: key, DEBUG: is_debug, CAUSATION: "cause"}
    if isinstance(header, str | int):
        headers["team"] = header
    plain = message(body=msgspec.json.encode(payload), correlation_id="chain", headers=headers)

    for setting in FORMATS:
        with eventbus(FORMAT=setting):
            reading = read(write(plain, name), LIMIT)

        assert reading.payload == payload
        found = reading.message
        assert (found.id, found.type, found.source) == (plain.id, plain.type, plain.source)
        assert (found.version, found.is_debug, found.sent_at) == (3, is_debug, SENT)
        assert (found.text(KEY), found.text(CAUSATION)) == (plain.text(KEY), "cause")
        assert found.correlation_id == "chain"


@hypothesis_settings(max_examples=300, deadline=None)
@given(
    body=strategies.binary(max_size=60) | PAYLOADS.map(msgspec.json.encode),
    content_type=strategies.sampled_from(
        ["", "application/json", "application/cloudevents+json", "application/cloudevents", "text/x"]
    ),
    headers=strategies.dictionaries(
        strategies.sampled_from(
            [
                *(f"cloudEvents_{name}" for name in ("specversion", "id", "source", "type", "time")),
                "cloudEvents:specversion", FORMAT, VERSION, DEBUG,
            ]
        ),
        SCALARS | strategies.just("1.0") | strategies.just("envelope"),
    ),
    setting=strategies.sampled_from(FORMATS),
)  # fmt: skip
def test_nothing_that_arrives_raises_anything_but_undecodable(body, content_type, headers, setting):
    strange = message(body=body, content_type=content_type, headers=headers)

    with eventbus(FORMAT=setting):
        with suppress(Undecodable):
            read(strange, LIMIT)
        assert recognised(strange, LIMIT).body == body
        blamed(strange, "words")


# The envelope.


def test_a_foreign_envelope_is_known_by_its_content():
    body = enveloped(meta={"tenant": 1}, status={"code": "ok"}, system={"is_debug": True, "x": 2})

    reading = read(message(body=body), LIMIT)

    assert reading.payload == {"id": 1}
    assert reading.message.body == body
    assert reading.message.is_debug
    assert reading.message.extra == {
        "meta": {"tenant": 1},
        "status": {"code": "ok"},
        "system": {"is_debug": True, "x": 2},
    }


@table(
    "body",
    [
        {"payload": {"id": 1}},
        {"meta": {}, "status": "ok"},
        {"meta": {}, "payload": {}, "status": {}, "more": 1},
        {},
        [],
        "payload",
        None,
    ],
)
def test_what_only_resembles_an_envelope_is_a_payload(body):
    assert read(message(body=json.dumps(body).encode()), LIMIT).payload == body


def test_a_message_of_ours_that_looks_like_an_envelope_is_none():
    body = enveloped()

    assert read(message(body=body, headers={VERSION: 1}), LIMIT).payload == json.loads(body)


def test_php_s_empty_arrays_are_empty_objects():
    body = enveloped(meta=[], payload=[], status=[], system=[])

    reading = read(message(body=body), LIMIT)

    assert reading.payload == {}
    assert reading.message.extra == {"meta": {}, "status": {}, "system": {}}


def test_everything_that_is_wrong_with_an_envelope_is_told_at_once():
    body = enveloped(meta="x", payload=3, status=None, system={"is_debug": "yes"})

    assert reasons(message(id="", type="", source="", body=body)) == [
        "the message has no message_id",
        "the message has no usable type",
        "the message has no app_id",
        "meta is text, not an object",
        "payload is a number, not an object or an array",
        "status is null, not an object",
        "system.is_debug is text, not a boolean",
    ]


@table(
    ("body", "expected"),
    [
        (b'{"meta": {}, "payload": {}, "status": {}}', ["system is missing"]),
        (b'{"meta": {}, "status": {}, "system": {}}', ["payload is missing"]),
        (b'{"meta": [1], "payload": {}, "status": {}, "system": {}}', ["meta is an array, not an object"]),
        (b'{"meta": {}, "payload": {}, "status": {}, "system": true}', ["system is a boolean, not an object"]),
        (b'{"meta": {}, "payload": NaN, "status": {}, "system": {}}', ["the body is not JSON"]),
        (b'{"meta": {}, "payload": {"a": 1e999}, "status": {}, "system": {}}', ["the body is not JSON"]),
        (b'{"meta": {}, "payload": {}, "status": {}, "system": {}', ["the body is not JSON"]),
        (b'{"meta": {}, "payload": "\xff", "status": {}, "system": {}}', ["the body is not JSON"]),
        (b'{"meta": ' + b"[" * 10**5 + b"]" * 10**5 + b"}", ["the body is nested too deeply"]),
    ],
)  # fmt: skip
def test_a_nasty_envelope_is_undecodable(body, expected):
    found = reasons(message(body=body), 10**6)

    assert [reason[: len(words)] for reason, words in zip(found, expected, strict=True)] == expected


def test_of_duplicate_keys_the_last_counts():
    body = b'{"meta": 3, "payload": {"a": 1}, "status": {}, "system": {}, "meta": {}, "payload": {"a": 2}}'

    assert read(message(body=body), LIMIT).payload == {"a": 2}


def test_a_huge_envelope_is_refused_unread_and_on_publishing():
    huge = enveloped(payload={"x": "y" * 200})

    assert reasons(message(id="", body=huge), 100) == [
        "the message has no message_id",
        f"the body has {len(huge)} bytes",
        "MAX_BODY_BYTES is 100",
    ]
    with eventbus(MAX_BODY_BYTES=100), pytest.raises(InvalidEvent, match="MAX_BODY_BYTES is 100"):
        write(message(body=b'{"x": "' + b"y" * 80 + b'"}'), "envelope")


@table(
    ("body", "expected"),
    [
        (
            b"{}",
            ["meta is missing", "payload is missing", "status is missing", "system is missing"],
        ),
        (b"[]", ["the body is an array, not an object of meta, payload, status and system"]),
        (b"nope", ["the message has no app_id", "the body is not JSON"]),
    ],
)
def test_where_everybody_writes_envelopes_anything_else_is_a_bad_one(body, expected):
    source = "" if body == b"nope" else "shop"
    with eventbus(FORMAT="envelope"):
        found = reasons(message(body=body, source=source))

    assert len(found) == len(expected)
    assert all(any(each.startswith(words) for each in found) for words in expected)


@table("payload", [3, "text", None, True])
def test_a_payload_that_no_envelope_can_hold_is_refused(payload):
    with pytest.raises(InvalidEvent, match="must be an object or an array"):
        write(message(body=msgspec.json.encode(payload)), "envelope")


def test_an_envelope_is_told_why_it_is_in_the_dlq_and_the_rest_stays_as_it_was():
    payload = b'{"big": 123456789012345678901234567890,  "float": 1.10}'
    body = b'{"payload": %b, "meta":{}, "status":{}, "system":{"is_debug": false}}' % payload

    told = blamed(message(body=body), "ValueError: no")

    assert payload in told.body
    system = json.loads(told.body)["system"]
    assert system == {"is_debug": False, "consumer_error": "ValueError: no"}


@table(
    "changes",
    [
        {"body": b'{"system": {}}'},
        {"body": b"nope"},
        {"body": enveloped(), "headers": {VERSION: 1}},
        {"body": enveloped(system="x")},
        {"body": enveloped(), "headers": {"cloudEvents_specversion": "1.0"}},
        {"body": enveloped(), "content_type": "application/cloudevents+json"},
    ],
)
def test_what_is_no_envelope_goes_to_the_dlq_byte_by_byte(changes):
    assert blamed(message(**changes), "words").body == changes["body"]


def test_an_envelope_that_would_grow_past_the_limit_stays_as_it_was():
    with eventbus(MAX_BODY_BYTES=len(enveloped()) + 10):
        assert blamed(message(body=enveloped()), "x" * 500).body == enveloped()


# CloudEvents.

CLOUD = {"specversion": "1.0", "id": "7", "source": "/billing", "type": "invoice.paid"}


def structured(content_type="application/cloudevents+json", **attributes):
    body = json.dumps({**CLOUD, **attributes}).encode()
    return message(id="", type="key", source="", body=body, content_type=content_type)


def binary(prefix="cloudEvents_", body=b'{"a": 1}', content_type="application/json", **attributes):
    headers = {f"{prefix}{name}": each for name, each in {**CLOUD, **attributes}.items()}
    headers = {name: each for name, each in headers.items() if each is not None}
    return message(id="", body=body, content_type=content_type, headers=headers)


@table(
    "event",
    [
        structured(data={"a": 1}, time="2026-01-02T03:04:05.678Z"),
        structured("Application/CloudEvents+JSON; charset=utf-8", data={"a": 1}, time=SENT.isoformat()),
        structured(data_base64=base64.b64encode(b'{"a": 1}').decode(), time=SENT.isoformat()),
        binary(time="2026-01-02T03:04:05.678Z"),
        binary("cloudEvents:", time=SENT),
        binary(content_type="application/vnd.shop+json", time=SENT.isoformat()),
        binary(content_type="", time=SENT.isoformat()),
    ],
)  # fmt: skip
def test_both_modes_are_read_by_content(event):
    reading = read(event, LIMIT)

    assert reading.payload == {"a": 1}
    found = reading.message
    assert (found.id, found.type, found.source) == ("/billing#7", "invoice.paid", "/billing")
    assert found.sent_at == SENT
    assert found.body == event.body
    assert found.extra["id"] == "7"


def test_what_an_event_says_beside_is_in_its_extra_and_its_headers():
    known = {"correlationid": "c", "partitionkey": "k", "causationid": "x", "subject": "s"}

    for event in (structured(**known), binary(**known)):
        found = read(event, LIMIT).message
        assert (found.correlation_id, found.text(KEY), found.text(CAUSATION)) == ("c", "k", "x")
        assert found.extra["subject"] == "s"


def test_an_id_is_unique_for_its_source_only():
    both = [read(structured(source=each), LIMIT).message.id for each in ("/a", "/b")]
    own = str(uuid7())

    assert both == ["/a#7", "/b#7"]
    assert read(structured(id=own), LIMIT).message.id == own


@table("time", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "1900-01-01T00:00:00Z"])
def test_a_time_that_no_broker_could_hold_is_only_told(time):
    found = read(structured(time=time), LIMIT).message

    assert (found.sent_at, found.extra["time"]) == (SENT, time)


def test_what_is_too_long_for_a_property_is_cut_or_undecodable():
    long = "\u00e4" * 200

    found = read(structured(source=long, id=str(uuid7()), correlationid=long), LIMIT).message
    assert len(found.source.encode()) == len(found.correlation_id.encode()) == 254
    assert found.extra["source"] == long
    assert reasons(structured(type=long)) == ["the message has no usable type"]
    assert reasons(binary(source=b"x")) == ["source is a bytes, not text"]


def test_data_may_be_missing():
    assert read(structured(), LIMIT).payload == {}
    assert read(binary(body=b"", content_type=""), LIMIT).payload == {}


def test_everything_that_is_wrong_with_a_cloudevent_is_told_at_once():
    bad = {"specversion": "0.3", "id": "", "source": 3, "type": None, "time": "yesterday"}
    words = [
        "specversion is '0.3', not '1.0'",
        "id is missing",
        "source is a number, not text",
        "type is missing",
        "time is not a time in the format of RFC 3339",
    ]

    assert reasons(structured(**bad)) == words
    assert reasons(binary(**bad, body=b"nope"))[:5] == words
    assert reasons(binary(**bad, body=b"nope"))[5].startswith("the body is not JSON")


@table(
    ("event", "words"),
    [
        (structured("application/cloudevents-batch+json"), "but only application/cloudevents+json is supported"),
        (structured("application/cloudevents+avro"), "but only application/cloudevents+json is supported"),
        (structured(data=1, data_base64="MQ=="), "data and data_base64 are both present"),
        (structured(data_base64="?"), "data_base64 is not Base64"),
        (structured(data_base64=3), "data_base64 is not Base64"),
        (structured(data_base64="MQ==", datacontenttype="text/plain"), "the content type is text/plain"),
        (binary(content_type="text/plain"), "the content type is text/plain"),
        (message(body=b"[]", content_type="application/cloudevents+json"), "the body is an array, not an object"),
        (message(body=b"{", content_type="application/cloudevents+json"), "the body is not JSON"),
        (structured(id="x" * 300), "longer than 255 bytes"),
    ],
)  # fmt: skip
def test_a_nasty_cloudevent_is_undecodable(event, words):
    assert words in reasons(event)[0]


def test_the_binary_mode_is_written_and_the_body_stays_the_payload():
    plain = message(body=b'{"a": 1}', correlation_id="c", headers={VERSION: 3, KEY: "k"})

    written = write(plain, "cloudevents")

    assert (written.body, written.content_type) == (plain.body, "application/json")
    assert written.headers == {
        VERSION: 3,
        KEY: "k",
        "cloudEvents_specversion": "1.0",
        "cloudEvents_id": plain.id,
        "cloudEvents_source": "shop",
        "cloudEvents_type": "order.placed",
        "cloudEvents_time": SENT.isoformat(),
        "cloudEvents_correlationid": "c",
        "cloudEvents_partitionkey": "k",
    }


# Another payload in the place of the old one.


@table(
    "old",
    [
        message(headers={VERSION: 3}),
        write(message(headers={VERSION: 3, DEBUG: True}), "envelope"),
        write(message(headers={VERSION: 3}), "cloudevents"),
        message(body=enveloped(meta={"tenant": 5})),
        structured(data={"a": 1}, subject="s"),
        structured(data_base64="MQ==", subject="s"),
        binary(subject="s"),
        binary("cloudEvents:", subject="s"),
    ],
)
@table("setting", FORMATS)
def test_another_payload_is_read_under_the_new_id_and_beside_it_all_stays(old, setting):
    new_id = str(uuid7())

    with eventbus(FORMAT=setting):
        before = read(old, LIMIT).message
        changed = with_payload(msgspec.structs.replace(old, id=new_id), b'{"b":2}')
        reading = read(changed, LIMIT)

    assert (reading.payload, reading.message.id) == ({"b": 2}, new_id)
    assert (reading.message.type, reading.message.source) == (before.type, before.source)
    assert (reading.message.is_debug, reading.message.version) == (before.is_debug, before.version)
    beside = {name: each for name, each in (before.extra or {}).items() if name != "id"}
    assert beside.items() <= (reading.message.extra or {}).items()


@table(
    ("old", "payload"),
    [
        (write(message(headers={VERSION: 3}), "envelope"), b"3"),
        (message(body=enveloped(meta="x"), source=""), b"{}"),
        (message(body=b"nope", content_type="text/plain"), b"{}"),
        (structured(source=3), b"{}"),
        (binary(type=None), b"{}"),
        (message(body=b"[", content_type="application/cloudevents+json"), b"{}"),
    ],
)
@table("setting", FORMATS)
def test_what_its_format_cannot_hold_or_read_becomes_native(old, payload, setting):
    with eventbus(FORMAT=setting):
        reading = read(with_payload(msgspec.structs.replace(old, id="new"), payload), LIMIT)

    assert (reading.message.id, reading.message.body) == ("new", payload)


# The whole way, on the database transport.


@pytest.mark.parametrize("name", FORMATS)
def test_typed_events_and_commands_go_through_every_format(bus, name):
    with eventbus(FORMAT=name):
        got, commands = [], []
        bus.subscribe(OrderPlaced, name="typed")(got.append)
        handle_command("file.reprocess", name="command")(commands.append)
        bus.transport.declare(queue_specs())
        event = OrderPlaced(order_id=7, total=Decimal("1.50"))
        publish(event, key=7, headers={"team": "red"}, debug=True)
        send_command("file.reprocess", {"id": 1})

        bus.drain()

    assert got == [event]
    meta = got[0].meta
    assert (meta.version, meta.key, meta.is_debug) == (3, "7", True)
    assert (meta.source, meta.headers["team"]) == ("shop-tests", "red")
    assert [each.payload for each in commands] == [{"id": 1}]


@pytest.mark.django_db
@eventbus(FORMAT="envelope")
def test_an_envelope_is_made_when_it_is_published():
    publish(OrderPlaced(order_id=7, total=Decimal(1)), headers={"team": "red"}, debug=True)

    row = OutboxEvent.objects.get()
    assert (row.type, row.source, row.content_type) == (
        "order.placed",
        "shop-tests",
        "application/json",
    )
    assert json.loads(bytes(row.body)) == {
        "meta": {"team": "red"},
        "payload": {"order_id": 7, "total": "1", "note": None},
        "status": {},
        "system": {"is_debug": True},
    }


@pytest.mark.django_db
@eventbus(FORMAT="envelope")
def test_what_no_envelope_can_hold_is_refused_before_anything_is_written():
    with pytest.raises(InvalidEvent, match="must be an object or an array"):
        publish("order.counted", 3)

    assert not OutboxEvent.objects.exists()


def test_the_parts_of_a_foreign_envelope_are_in_the_event_s_meta(bus):
    got = []
    bus.subscribe("order.*", name="all")(got.append)

    body = enveloped(meta={"tenant": 5}, status={"code": 1}, system={"created_at": "now"})
    bus.put(body=body, source="nano")
    bus.drain()

    (event,) = got
    assert (event.payload, event.meta.source) == ({"id": 1}, "nano")
    assert event.meta.extra["meta"] == {"tenant": 5}
    assert event.meta.extra["system"] == {"created_at": "now"}


def test_a_foreign_debug_envelope_reaches_the_debug_handler_and_again_on_a_retry(bus):
    got = []

    def debug(event):
        got.append(event.meta.attempt)
        if event.meta.attempt == 1:
            raise ValueError

    bus.subscribe("order.*", name="all", retry=["1s"], debug_handler=debug)(pytest.fail)

    bus.put(body=enveloped(system={"is_debug": True}), source="nano")
    bus.drain()

    assert got == [1, 2]


FOREIGN = {
    "envelope": {
        "body": b' {"meta":[], "payload":{"do": 1.10},"status":[],  "system":[]} ',
        "source": "nano",
        "id": "n-1",
    },
    "structured": {
        "body": json.dumps({**CLOUD, "data": {"do": 1}}, indent=3).encode(),
        "content_type": "application/cloudevents+json",
        "id": "",
    },
    "binary": {
        "body": b' {"do" : 1} ',
        "headers": {f"cloudEvents_{name}": each for name, each in CLOUD.items()},
        "id": "",
    },
}


@pytest.mark.parametrize("name", FOREIGN)
def test_retries_parking_and_redrives_keep_the_bytes_of_a_foreign_format(bus, name):
    attempts = []

    @bus.subscribe("#", name="all", retry=["1s"])
    def handler(event):
        attempts.append((event.meta.round, event.meta.attempt, event.meta.id, event.payload["do"]))
        if not event.meta.round:
            raise ValueError

    bus.put(**FOREIGN[name])
    bus.drain()
    letter = bus.letter
    assert bytes(letter.body) == FOREIGN[name]["body"]
    redrive([letter.pk], by="me", using="default")
    sent_again = OutboxEvent.objects.get()
    assert bytes(sent_again.body) == FOREIGN[name]["body"]
    bus.drain()

    own, do = ("n-1", 1.1) if name == "envelope" else ("/billing#7", 1)
    assert attempts == [(0, 1, own, do), (0, 2, own, do), (1, 1, own, do)]
    assert DeadLetter.objects.get().state == DeadLetter.State.HEALED
    assert InboxRecord.objects.get().message_id == own


@pytest.mark.parametrize("name", FOREIGN)
def test_a_dead_letter_is_found_by_its_payload_in_any_format(bus, name):
    bus.subscribe("#", name="all", tries=1)(lambda event: event.payload["nothing"])

    bus.put(**FOREIGN[name])
    bus.drain()

    do = 1.1 if name == "envelope" else 1
    assert bus.letter.payload == {"do": do}
    selection = Selection.of([("payload.do", str(do))])
    assert [each.pk for each in matching(selection, "default")] == [bus.letter.pk]


def test_of_what_no_format_explains_the_whole_body_can_be_searched(bus):
    bus.subscribe("order.*", name="all")(pytest.fail)

    bus.put(body=enveloped(meta="x"))
    bus.consume()

    assert bus.letter.payload["payload"] == {"id": 1}


@pytest.mark.parametrize("name", ["structured", "binary"])
def test_the_same_cloudevent_twice_has_one_effect(bus, name):
    got = []
    bus.subscribe("invoice.*", name="all")(got.append)

    bus.put(**FOREIGN[name])
    bus.put(**FOREIGN[name])
    bus.drain()

    assert len(got) == 1


def test_a_bad_envelope_is_parked_with_its_reasons_and_its_bytes(bus):
    bus.subscribe("order.*", name="all")(pytest.fail)
    body = enveloped(meta="x", system={"is_debug": 1})

    bus.put(body=body)
    (outcome,) = bus.consume()

    assert isinstance(outcome, Park)
    letter = bus.letter
    assert letter.kind == "undecodable"
    assert letter.error == (
        "the message has no app_id; meta is text, not an object; "
        "system.is_debug is a number, not a boolean"
    )
    assert bytes(letter.body) == body


def test_a_payload_that_its_class_refuses_is_parked_as_invalid_in_any_format(bus):
    bus.subscribe(OrderPlaced, name="typed")(pytest.fail)

    bus.put(
        body=enveloped(payload={"order_id": "x"}),
        source="nano",
        headers={VERSION: 3, FORMAT: "envelope"},
    )
    bus.consume()

    assert bus.letter.kind == "invalid"


@pytest.mark.parametrize("name", FOREIGN)
def test_an_edited_dead_letter_goes_out_in_its_own_format(bus, name):
    got = []

    @bus.subscribe("#", name="all", tries=1)
    def handler(event):
        got.append(event)
        if event.payload["do"] != "better":
            raise ValueError

    bus.put(**FOREIGN[name])
    bus.drain()
    edit = Edit(payload={"do": "better"})
    new_id = edit_and_redrive(bus.letter.pk, edit, by="me", reason="", using="default")
    bus.drain()

    first, second = got
    assert (second.meta.id, second.payload) == (new_id, {"do": "better"})
    assert second.meta.causation_id == first.meta.id
    assert second.meta.extra.keys() == first.meta.extra.keys() != set()


TRACE = {TRACEPARENT: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", TRACESTATE: "v=1"}


@table("name", FORMATS)
def test_the_trace_of_an_event_is_in_its_headers_in_every_format(name):
    written = write(message(headers=dict(TRACE)), name)

    assert written.headers.items() >= TRACE.items()
    assert read(written, LIMIT).message.headers.items() >= TRACE.items()
    assert b"4bf92f35" not in written.body


def test_a_cloudevent_says_where_it_was_created():
    written = write(message(headers=dict(TRACE)), "cloudevents").headers

    assert written["cloudEvents_traceparent"] == TRACE[TRACEPARENT]
    assert written["cloudEvents_tracestate"] == "v=1"


@table("mode", ["binary", "structured"])
def test_the_trace_of_a_foreign_cloudevent_is_known_unless_its_transport_has_another(mode):
    event = {"specversion": "1.0", "id": "1", "source": "/far", "type": "a.b", **TRACE}
    if mode == "binary":
        headers = {f"cloudEvents_{name}": value for name, value in event.items()}
        foreign = message(headers=headers)
    else:
        body = json.dumps({**event, "data": {}}).encode()
        foreign = message(body=body, content_type="application/cloudevents+json")
    hop = msgspec.structs.replace(foreign, headers={**foreign.headers, TRACEPARENT: "hop"})

    assert read(foreign, LIMIT).message.headers.items() >= TRACE.items()
    assert read(hop, LIMIT).message.headers[TRACEPARENT] == "hop"
    assert TRACESTATE not in read(hop, LIMIT).message.headers
