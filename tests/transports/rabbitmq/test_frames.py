"""Our frames are those that pika would have written."""

from __future__ import annotations

import struct
from datetime import UTC, datetime

import pika
from hypothesis import given
from hypothesis import strategies as st
from pika import data, frame, spec

from django_eventbus.events.message import Message
from django_eventbus.transports.contract import ToExchange
from django_eventbus.transports.rabbitmq.batch import Batch, pending_message
from django_eventbus.transports.rabbitmq.encoding import (
    encoded_properties,
    method_frame,
    publish_frames,
)
from tests.support.tables import table

names = st.text(max_size=60)
properties = st.builds(
    pika.BasicProperties,
    message_id=names,
    type=names,
    headers=st.dictionaries(names, st.one_of(names, st.integers(0, 2**31))),
    timestamp=st.integers(0, 2**40),
    delivery_mode=st.just(2),
)


def written_by_pika(channel, exchange, routing_key, properties, body, frame_max):
    """Return what Connection._send_message() writes."""
    method = spec.Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=True)
    frames = [
        frame.Method(channel, method).marshal(),
        frame.Header(channel, len(body), properties).marshal(),
    ]
    most = frame_max - spec.FRAME_HEADER_SIZE - spec.FRAME_END_SIZE
    pieces = [body[start : start + most] for start in range(0, len(body), most)]
    return b"".join([*frames, *(frame.Body(channel, piece).marshal() for piece in pieces)])


@given(st.integers(1, 2047), names, names, properties, st.binary(max_size=300), st.integers(9, 120))
def test_a_publish_is_written_byte_by_byte_as_pika_writes_it(
    channel, exchange, routing_key, properties, body, frame_max
):
    method = method_frame(channel, exchange, routing_key)
    encoded = b"".join(properties.encode())

    ours = publish_frames(channel, method, encoded, body, frame_max)

    assert ours == written_by_pika(channel, exchange, routing_key, properties, body, frame_max)


def received_in_64_bits(number: int) -> int:
    """Return what pika makes of a number of 64 bits; its own subclass of int before 1.5."""
    return data.decode_value(b"l" + struct.pack(">q", number), 0)[0]


PLACE = ToExchange(exchange="events", routing_key="a.b")
values = st.one_of(
    names,
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-9, 9).map(received_in_64_bits),
    st.booleans(),
    st.none(),
    st.binary(max_size=9),
    st.lists(st.integers(0, 9), max_size=3),
    st.dictionaries(names, st.integers(0, 9), max_size=2),
)
messages = st.builds(
    Message,
    id=names,
    type=names,
    body=st.just(b"{}"),
    content_type=names,
    source=names,
    correlation_id=names,
    reply_to=names,
    sent_at=st.none() | st.datetimes(datetime(1970, 1, 2), timezones=st.just(UTC)),
    headers=st.dictionaries(names, values, max_size=5),
)


@given(messages)
def test_properties_are_encoded_byte_by_byte_as_pika_encodes_them(message):
    properties = pika.BasicProperties(
        message_id=message.id,
        type=message.type or None,
        app_id=message.source or None,
        content_type=message.content_type or None,
        correlation_id=message.correlation_id or None,
        reply_to=message.reply_to or None,
        timestamp=int(message.sent_at.timestamp()) if message.sent_at else None,
        delivery_mode=pika.DeliveryMode.Persistent,
        headers=dict(message.headers),
    )

    assert encoded_properties(message) == b"".join(properties.encode())


@table(
    ("fault", "words"),
    [
        ({"id": "x" * 256}, "ShortStringTooLong"),
        ({"headers": {"x" * 256: 1}}, "ShortStringTooLong"),
        ({"headers": {"far": 2**64}}, ""),
        ({"headers": {"odd": object()}}, "UnsupportedAMQPFieldException"),
        ({"headers": {"lone": "\ud800"}}, "UnicodeEncodeError"),
    ],
)
def test_what_amqp_has_no_form_for_is_told_of_its_parcel_alone(fault, words):
    message = Message(**{"id": "1", "type": "a.b", "body": b"{}", **fault})

    message = pending_message(Batch(1), 0, message, PLACE)

    assert message.problem_with(4096).startswith(f"its properties cannot be encoded: {words}")


def test_properties_larger_than_a_frame_are_told_before_they_are_sent():
    message = Message(id="1", type="a.b", body=b"{}", headers={"wide": "x" * 5000})

    message = pending_message(Batch(1), 0, message, PLACE)

    assert "the broker accepts 4096" in message.problem_with(4096)
    assert not message.problem_with(131_072)
