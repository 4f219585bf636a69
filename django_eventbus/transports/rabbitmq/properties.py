"""The properties of a message as bytes. pika makes the same ones, in three times the time."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pika
from pika import data, exceptions
from pika.spec import BasicProperties

from django_eventbus.messages import Message, storable

#: What the frame around the properties takes.
_FRAME_OVERHEAD = 64
_SHORT = 255
_FLAGS, _SIZE, _TIME = struct.Struct(">H"), struct.Struct(">I"), struct.Struct(">Q")
_TEXT, _NUMBER = struct.Struct(">cI"), struct.Struct(">ci")
_PERSISTENT = bytes([pika.DeliveryMode.Persistent.value])
_ALWAYS = (
    BasicProperties.FLAG_HEADERS
    | BasicProperties.FLAG_DELIVERY_MODE
    | BasicProperties.FLAG_MESSAGE_ID
)


def encoded_properties(message: Message) -> bytes:
    """Return what the content header says of *message*; raise if AMQP has no form for it."""
    flags, pieces = _ALWAYS, [b""]
    # In the order of the protocol.
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
    """Return the same as pika's object."""
    properties: BasicProperties = BasicProperties().decode(encoded_properties(message))
    return properties


def _table(headers: Mapping[str, Any]) -> bytes:
    fields = b"".join([_recurring(name) + _field(value) for name, value in headers.items()])
    return _SIZE.pack(len(fields)) + fields


def _field(value: Any) -> bytes:
    # Not isinstance(): a bool is an int, and pika has an int of its own for 64 bits.
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


#: For what most messages have in common.
_recurring = lru_cache(maxsize=1024)(_short)


def encoding_problem(error: Exception) -> str:
    """Say why the properties of a message have no form."""
    return f"its properties cannot be encoded: {type(error).__name__}: {storable(str(error), 200)}"


def size_problem(properties: bytes, frame_max: int) -> str:
    """Say why *properties* cannot be sent, or return ""; the broker would drop the connection."""
    if len(properties) + _FRAME_OVERHEAD <= frame_max:
        return ""
    size = len(properties)
    return f"its properties and headers have {size} bytes; the broker takes {frame_max}"


@lru_cache(maxsize=1024)
def name_problem(exchange: str, routing_key: str) -> str:
    """Say why nothing can be sent to this place, or return ""."""
    for what, name in (("exchange", exchange), ("routing key", routing_key)):
        try:
            if len(name.encode()) > _SHORT:
                return f"its {what} has more than {_SHORT} bytes"
        except UnicodeEncodeError:
            return f"its {what} is not Unicode"
    return ""
