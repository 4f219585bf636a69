"""Messages that break decoders, sent by a raw client: parked once, and the next is handled."""

from __future__ import annotations

import base64
import struct
from datetime import UTC, datetime

import pika
import pytest

from django_eventbus import transports
from django_eventbus.conf import conf
from django_eventbus.consumer.consumer import Consumer
from django_eventbus.models import DeadLetter, InboxRecord
from django_eventbus.redrive.discards import discard
from django_eventbus.subscriptions.queue_specs import queue_specs
from tests.shop.models import Effect

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgres,
    pytest.mark.rabbitmq,
]

P = pika.BasicProperties
BODY = b'{"do": "ok"}'
MILLISECONDS = 1_700_000_000_000


class Properties(P):
    """Properties that are sent as the bytes that they are given."""

    def __init__(self, **parts):
        super().__init__()
        self.parts = {"message_id": b"nasty", "type": b"count.up", **parts}

    def encode(self):
        given = {name: value for name, value in self.parts.items() if value is not None}
        flags = sum(getattr(P, f"FLAG_{name.upper()}") for name in given)
        order = ("content_type", "headers", "message_id", "timestamp", "type")
        pieces = [self.piece(name, given[name]) for name in order if name in given]
        return [struct.pack(">H", flags), *pieces]

    def piece(self, name, value):
        if name == "timestamp":
            return struct.pack(">Q", value)
        return struct.pack(">I" if name == "headers" else ">B", len(value)) + value


def header(name, kind, value):
    return struct.pack(">B", len(name)) + name + kind + value


def text(value):
    return struct.pack(">I", len(value)) + value


def nested(kind, depth):
    """Return a table or an array that holds one that holds one that …"""
    value = b""
    for _ in range(depth):
        inside = header(b"k", kind, text(value)) if kind == b"F" else kind + text(value)
        value = inside
    return header(b"deep", kind, text(value))


#: What is sent, as a body and parts of properties, and the reason that its dead letter gives.
NASTY = {
    "header timestamp in milliseconds": (
        BODY,
        {"headers": header(b"at", b"T", struct.pack(">Q", MILLISECONDS))},
        "its properties cannot be decoded: ValueError",
    ),
    "header timestamp out of all range": (
        BODY,
        {"headers": header(b"at", b"T", struct.pack(">Q", 2**64 - 1))},
        "its properties cannot be decoded: OverflowError",
    ),
    "deep table": (
        BODY,
        {"headers": nested(b"F", 2_000)},
        "its properties cannot be decoded: RecursionError",
    ),
    "deep array": (
        BODY,
        {"headers": nested(b"A", 5_000)},
        "its properties cannot be decoded: RecursionError",
    ),
    "header that is not UTF-8": (
        BODY,
        {"headers": header(b"city", b"S", text(b"K\xf6ln"))},
        "its header 'city' is not UTF-8",
    ),
    "header name that is not UTF-8": (
        BODY,
        {"headers": header(b"K\xf6ln", b"S", text(b"x"))},
        "its header b'K\\xf6ln' is not UTF-8",
    ),
    "type that is not UTF-8": (BODY, {"type": b"\xff"}, "its type is not UTF-8"),
    "id that is not UTF-8": (BODY, {"message_id": b"\xff"}, "its message_id is not UTF-8"),
    "no id": (BODY, {"message_id": None}, "the message has no message_id"),
    "empty id": (BODY, {"message_id": b"", "timestamp": 1}, "the message has no message_id"),
    "id with NUL": (
        BODY,
        {"message_id": b"a\x00b", "timestamp": 2},
        "the message_id contains a NUL or a lone surrogate",
    ),
    "type with NUL": (BODY, {"type": b"a\x00b"}, "the message has no usable type"),
    "unknown content type": (
        BODY,
        {"content_type": b"application/x-pickle"},
        "the content type is application/x-pickle, not application/json",
    ),
    "content type that is not UTF-8": (
        BODY,
        {"content_type": b"\xff"},
        "its content_type is not UTF-8",
    ),
    "body that is not UTF-8": (b'{"city": "K\xf6ln"}', {}, "the body is not JSON"),
    "body in UTF-16": ('{"a": 1}'.encode("utf-16"), {}, "the body is not JSON"),
    "empty body": (b"", {}, "the body is not JSON"),
    "body of NUL": (b"\x00", {}, "the body is not JSON"),
    "NaN": (b'{"a": NaN}', {}, "the body is not JSON"),
    "huge integer": (b'{"a": 1' + b"0" * 5_000 + b"}", {}, "the body is not JSON"),
    "100,000 levels": (b"[" * 100_000 + b"]" * 100_000, {}, "the body is nested too deeply"),
    # RabbitMQ 4 accepts no more.
    "16 MiB": (b'"' + b"x" * (2**24 - 2) + b'"', {}, "MAX_BODY_BYTES is 1048576"),
}


class Line:
    """A consumer of one queue, and a raw client that writes to it."""

    def __init__(self, url):
        self.transport = transports.connect(conf.broker_url)
        self.transport.declare(queue_specs())
        self.queue = conf.queue("counts")
        self.subscriber = self.transport.subscriber([self.queue], prefetch=1)
        self.consumer = Consumer(self.transport.publisher())
        self.raw = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self.raw.channel()
        self.channel.confirm_delivery()

    def send(self, body=BODY, routing_key="", **parts):
        properties = Properties(**parts)
        self.channel.basic_publish(
            conf.events_exchange if routing_key else "", routing_key or self.queue, body, properties
        )

    def consume(self):
        delivery = self.subscriber.receive(20)
        assert delivery, "nothing arrived"
        self.consumer.consume(delivery)
        return delivery

    def close(self):
        self.subscriber.close()
        self.consumer.publisher.close()
        self.raw.close()


@pytest.fixture
def line(amqp):
    line = Line(amqp.url)
    yield line
    line.close()


def test_each_is_parked_once_with_its_bytes_and_the_next_is_handled(line):
    feeds = set()
    for number, (name, (body, parts, _)) in enumerate(NASTY.items()):
        line.send(body, **{"message_id": name.encode(), **parts})
        line.send(message_id=b"good-%d" % number)
        # Parked, and then lost before its ack: it comes again, its delivery counted in a header.
        delivery = line.subscriber.receive(20)
        delivery.ack = delivery.release
        line.consumer.consume(delivery)
        line.consume()
        line.consume()
        feeds.add(line.subscriber._feed)

    letters = list(DeadLetter.objects.order_by("id"))
    assert len(letters) == len(NASTY)
    for letter, (name, (body, _, reason)) in zip(letters, NASTY.items(), strict=True):
        assert (letter.kind, letter.state) == ("undecodable", "open"), name
        assert reason in letter.error, name
        assert bytes(letter.body) == body, name
    assert Effect.objects.count() == len(NASTY)
    # One connection all the time, and nothing is left.
    assert len(feeds) == 1
    assert line.subscriber.is_drained()


def test_what_can_still_be_read_of_unreadable_properties_is_kept(line):
    headers = header(b"at", b"T", struct.pack(">Q", MILLISECONDS))
    line.send(content_type=b"application/json", headers=headers, message_id=b"mine", timestamp=7)

    line.consume()

    letter = DeadLetter.objects.get()
    assert (letter.message_id, letter.type) == ("mine", "count.up")
    assert headers in base64.b64decode(letter.headers["unreadable-properties"])


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({"timestamp": MILLISECONDS}, id="timestamp in milliseconds"),
        pytest.param({"timestamp": 2**64 - 1}, id="timestamp out of all range"),
        pytest.param({"message_id": b"i" * 255}, id="longest id"),
        pytest.param({"headers": header(b"raw", b"x", text(b"\xff"))}, id="bytes in a header"),
        pytest.param({"headers": nested(b"F", 150)}, id="table of 150 levels"),
        pytest.param({"type": None, "routing_key": "count.up"}, id="no type"),
    ],
)
def test_what_is_odd_and_can_be_read_is_handled(line, parts):
    line.send(**parts)

    line.consume()

    assert not DeadLetter.objects.exists()
    assert Effect.objects.count() == 1


@pytest.mark.parametrize(
    ("timestamp", "read"),
    [
        pytest.param(1_700_000_000, True, id="seconds"),
        pytest.param(MILLISECONDS, True, id="milliseconds"),
        pytest.param(2**64 - 1, False, id="out of all range"),
    ],
)
def test_a_timestamp_is_read_in_seconds_or_milliseconds_or_counts_as_none(line, timestamp, read):
    line.send(timestamp=timestamp)

    line.consume()

    sent_at = datetime.fromtimestamp(1_700_000_000, UTC) if read else None
    assert InboxRecord.objects.get().sent_at == sent_at


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param(
            header(b"x-redriven-at", b"S", text(b"9999-12-31T23:59:59+00:00")),
            id="re-driven at the end of time",
        ),
        pytest.param(
            header(b"x-delivery-count", b"l", struct.pack(">q", -100)), id="a negative count"
        ),
        pytest.param(
            header(b"x-delivery-count", b"l", struct.pack(">q", 2**62)), id="a huge count"
        ),
    ],
)
def test_a_header_that_was_made_up_neither_ends_nor_delays_a_consumer(line, headers):
    acts = line.transport.subscriber([conf.queue("acts")], prefetch=1)
    line.send(b'{"do": "fail once"}', "act.now", type=b"act.now", headers=headers)

    # Returned once, as in an outage: it comes again within seconds.
    acts.receive(20).release(after=0.1)
    for _ in range(2):
        delivery = acts.receive(10)
        assert delivery, "the message is held"
        line.consumer.consume(delivery)
    acts.close()

    assert Effect.objects.filter(subscription="shop.act").count() == 1
    assert not DeadLetter.objects.exists()


def test_a_message_with_thousands_of_headers_is_parked_unread(line):
    many = b"".join(header(b"h%d" % number, b"t", b"\x01") for number in range(9_000))
    line.send(headers=many)

    line.consume()

    letter = DeadLetter.objects.get()
    assert (letter.kind, bytes(letter.body)) == ("undecodable", BODY)
    assert "more than 1000 headers" in letter.error


def test_the_payload_of_a_huge_body_is_not_decoded_to_be_parked(line):
    body = b"[" + b"1," * 5_000_000 + b"1]"
    line.send(body)

    line.consume()

    letter = DeadLetter.objects.get()
    assert (letter.kind, letter.payload, bytes(letter.body)) == ("undecodable", None, body)


def test_headers_that_cannot_be_sent_on_do_not_stop_a_retry(amqp, line, caplog):
    huge = b"".join(
        header(name, b"d", struct.pack(">d", 1e300))
        for name in (b"huge", b"x-huge", b"eventbus-key")
    )
    acts = line.transport.subscriber([conf.queue("acts")], prefetch=1)
    line.send(b'{"do": "fail once"}', "act.now", type=b"act.now", headers=huge)

    for _ in range(2):
        line.consumer.consume(acts.receive(20))
    acts.close()

    assert Effect.objects.filter(subscription="shop.act").count() == 1
    assert "The retry of nasty is sent without its headers." in caplog.text
    assert not DeadLetter.objects.exists()


def test_messages_without_an_id_are_told_apart_by_when_and_where_they_were_sent(line):
    for parts in ({}, {"timestamp": 1}, {"timestamp": 2}, {"routing_key": "count.up"}):
        line.send(message_id=None, **parts)
        line.consume()

    assert DeadLetter.objects.count() == 4


def test_an_equal_message_without_an_id_opens_a_closed_dead_letter_again(line):
    line.send(message_id=None)
    line.consume()
    letter = DeadLetter.objects.get()
    discard([letter.pk], reason="seen", by="me", using="default")

    line.send(message_id=None)
    line.consume()

    again = DeadLetter.objects.get()
    assert (again.pk, again.state, again.closed_at) == (letter.pk, "open", None)
