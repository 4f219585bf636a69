"""Encode a message's properties and publish frames as bytes."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pika
from pika import data, exceptions
from pika.spec import BasicProperties

from django_eventbus.events.message import Message
from django_eventbus.events.text import storable

_METHOD, _HEADER, _BODY = 1, 2, 3
_BASIC, _PUBLISH, _MANDATORY = 60, 40, 1
_END = b"\xce"
_HEAD = struct.Struct(">BHI")

#: The start of the header frame, and its size before the properties.
_CONTENT = struct.Struct(">BHIHHQ")
_BEFORE_PROPERTIES = _CONTENT.size - _HEAD.size

#: The bytes of a frame around its payload.
_AROUND = _HEAD.size + len(_END)

#: The maximum bytes of the frame around the properties.
_FRAME_OVERHEAD = 64
_SHORT = 255
_PERSISTENT = bytes([pika.DeliveryMode.Persistent.value])
_ALWAYS = (
    BasicProperties.FLAG_HEADERS
    | BasicProperties.FLAG_DELIVERY_MODE
    | BasicProperties.FLAG_MESSAGE_ID
)


@lru_cache(maxsize=1024)
def method_frame(channel: int, exchange: str, routing_key: str) -> bytes:
    """Return the frame of a mandatory basic.publish."""
    names = b"".join(
        bytes([len(name)]) + name for name in (exchange.encode(), routing_key.encode())
    )
    method = struct.pack(">HHH", _BASIC, _PUBLISH, 0) + names + bytes([_MANDATORY])
    return _HEAD.pack(_METHOD, channel, len(method)) + method + _END


def publish_frames(
    channel: int, method: bytes, properties: bytes, body: bytes, frame_max: int
) -> bytes:
    """Return all frames that publish *body*, the *method* frame first."""
    size = _BEFORE_PROPERTIES + len(properties)
    head = _CONTENT.pack(_HEADER, channel, size, _BASIC, 0, len(body))
    most = frame_max - _AROUND
    if 0 < len(body) <= most:
        frame = _HEAD.pack(_BODY, channel, len(body))
        return b"".join((method, head, properties, _END, frame, body, _END))
    frames = [method, head, properties, _END]
    for start in range(0, len(body), most):
        piece = body[start : start + most]
        frames += [_HEAD.pack(_BODY, channel, len(piece)), piece, _END]
    return b"".join(frames)


_FLAGS, _SIZE, _TIME = struct.Struct(">H"), struct.Struct(">I"), struct.Struct(">Q")
_TEXT, _NUMBER = struct.Struct(">cI"), struct.Struct(">ci")


def encoded_properties(message: Message) -> bytes:
    """Encode the properties of *message*; raise an error if AMQP cannot represent them."""
    flags, pieces = _ALWAYS, [b""]
    # The protocol requires this order.
    if message.content_type:
        flags |= BasicProperties.FLAG_CONTENT_TYPE
        pieces.append(_recurring(message.content_type))
    pieces += (_table(message.headers), _PERSISTENT)
    if message.correlation_id:
        flags |= BasicProperties.FLAG_CORRELATION_ID
        pieces.append(_short(message.correlation_id))
    if message.reply_to:
        flags |= BasicProperties.FLAG_REPLY_TO
        pieces.append(_short(message.reply_to))
    pieces.append(_short(message.id))
    if message.sent_at:
        flags |= BasicProperties.FLAG_TIMESTAMP
        pieces.append(_TIME.pack(int(message.sent_at.timestamp())))
    if message.type:
        flags |= BasicProperties.FLAG_TYPE
        pieces.append(_recurring(message.type))
    if message.source:
        flags |= BasicProperties.FLAG_APP_ID
        pieces.append(_recurring(message.source))
    pieces[0] = _FLAGS.pack(flags)
    return b"".join(pieces)


def properties_of(message: Message) -> BasicProperties:
    """Return the same properties as an object of pika."""
    properties: BasicProperties = BasicProperties().decode(encoded_properties(message))
    return properties


def _table(headers: Mapping[str, Any]) -> bytes:
    fields = b"".join([_recurring(name) + _field(value) for name, value in headers.items()])
    return _SIZE.pack(len(fields)) + fields


def _field(value: Any) -> bytes:
    # Not isinstance(): a bool is an int, and pika has its own subclass of int for 64 bits.
    if type(value) is int and -(2**31) <= value < 2**31:
        return _NUMBER.pack(b"I", value)
    if type(value) is str:
        text = value.encode()
        return _TEXT.pack(b"S", len(text)) + text
    pieces: list[bytes] = []
    data.encode_value(pieces, value)
    return b"".join(pieces)


def _short(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > _SHORT:
        raise exceptions.ShortStringTooLong(encoded)
    return bytes((len(encoded),)) + encoded


#: A cache for texts that most messages share.
_recurring = lru_cache(maxsize=1024)(_short)


def encoding_problem(error: Exception) -> str:
    """Return why the properties of a message cannot be encoded."""
    return f"its properties cannot be encoded: {type(error).__name__}: {storable(str(error), 200)}"


def size_problem(properties: bytes, frame_max: int) -> str:
    """Return why *properties* are too large, or "". The broker would drop the connection."""
    if len(properties) + _FRAME_OVERHEAD <= frame_max:
        return ""
    size = len(properties)
    return f"its properties and headers have {size} bytes; the broker accepts {frame_max}"


@lru_cache(maxsize=1024)
def name_problem(exchange: str, routing_key: str) -> str:
    """Return why the exchange or the routing key is not valid, or ""."""
    for what, name in (("exchange", exchange), ("routing key", routing_key)):
        try:
            if len(name.encode()) > _SHORT:
                return f"its {what} has more than {_SHORT} bytes"
        except UnicodeEncodeError:
            return f"its {what} is not Unicode"
    return ""
