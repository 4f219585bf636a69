"""Read AMQP properties into a Message."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from pika import spec

from django_eventbus.events.message import UNREADABLE, Message, moment, past

#: A second in the year 5138. A larger timestamp is in milliseconds.
_LAST_SECOND = 100_000_000_000
#: A message with more headers is parked: it is not from a publisher that means well.
_HEADERS_LIMIT = 1_000
_TEXTS = ("message_id", "type", "content_type", "app_id", "correlation_id")
_FLAGS, _SIZE, _LONG_STRING = struct.Struct(">H"), struct.Struct(">I"), struct.Struct(">cI")


class GuardedProperties(spec.BasicProperties):
    """
    Properties whose decoding cannot fail.

    pika decodes them in its read loop. A timestamp out of range, or a table with too many levels,
    would raise there and drop the connection, and the broker would deliver the message again.
    """

    fault = ""
    raw = b""

    def decode(self, encoded: bytes, offset: int = 0) -> GuardedProperties:
        try:
            super().decode(encoded, offset)
            if len(self.headers or ()) > _HEADERS_LIMIT:
                # The checks of so many would keep the I/O thread from its other work.
                self._blame(f"it has more than {_HEADERS_LIMIT} headers", encoded[offset:])
            elif name := _not_text(self, encoded):
                self._blame(f"its {name} is not UTF-8", encoded[offset:])
        except Exception as error:
            self._blame(
                f"its properties cannot be decoded: {type(error).__name__}", encoded[offset:]
            )
            with suppress(Exception):
                # Usually the headers are invalid. The id and the type come after them.
                super().decode(_without_headers(self.raw))
        return self

    def _blame(self, fault: str, raw: bytes) -> None:
        self.fault, self.raw = fault, bytes(raw)


def _not_text(properties: spec.BasicProperties, encoded: bytes) -> str:
    """Return the name of a text property or header that is not UTF-8, or ""."""
    for each in _TEXTS:
        if isinstance(getattr(properties, each), bytes):
            return each
    headers: Mapping[Any, Any] = properties.headers or {}
    for name, value in headers.items():
        # A value may also be bytes because it was sent as bytes, which is valid.
        is_string = (
            isinstance(value, bytes) and _LONG_STRING.pack(b"S", len(value)) + value in encoded
        )
        if isinstance(name, bytes) or is_string:
            return f"header {name!a:.100}"
    return ""


def _without_headers(raw: bytes) -> bytes:
    """Return encoded properties without their header table."""
    (flags,) = _FLAGS.unpack_from(raw)
    start = _FLAGS.size
    for flag in (
        spec.BasicProperties.FLAG_CONTENT_TYPE,
        spec.BasicProperties.FLAG_CONTENT_ENCODING,
    ):
        start += 1 + raw[start] if flags & flag else 0
    end = start + _SIZE.size + _SIZE.unpack_from(raw, start)[0]
    left = flags & ~spec.BasicProperties.FLAG_HEADERS
    return _FLAGS.pack(left) + raw[_FLAGS.size : start] + raw[end:]


spec.props[spec.BasicProperties.INDEX] = GuardedProperties


def message_of(method: spec.Basic.Deliver, properties: Any, body: bytes) -> Message:
    """Convert a delivery to a message, with its fault if it has one."""
    fault = getattr(properties, "fault", "")
    headers = {_text(name): value for name, value in (properties.headers or {}).items()}
    if fault:
        headers = {UNREADABLE: base64.b64encode(properties.raw).decode()}
    return Message(
        id=_text(properties.message_id, errors="backslashreplace"),
        type=_text(properties.type) or _text(method.routing_key),
        body=body,
        content_type=_text(properties.content_type),
        source=_text(properties.app_id),
        sent_at=_time(properties.timestamp),
        correlation_id=_text(properties.correlation_id),
        reply_to=_text(properties.reply_to),
        headers=headers,
        exchange=_text(method.exchange),
        routing_key=_text(method.routing_key),
        fault=fault,
    )


def _text(value: Any, errors: str = "replace") -> str:
    # pika returns text that is not UTF-8 as bytes.
    if isinstance(value, bytes):
        return value.decode(errors=errors)
    return "" if value is None else str(value)


def _time(timestamp: Any) -> datetime | None:
    if not isinstance(timestamp, int) or timestamp <= 0:
        return None
    # AMQP requires seconds, but many publishers send milliseconds.
    return past(moment(timestamp / 1000 if timestamp > _LAST_SECOND else timestamp))
