"""CloudEvents 1.0. The bus reads both modes and writes the binary mode."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import UNSET, Raw
from msgspec.json import encode
from msgspec.structs import replace

from django_eventbus.events.formats.native import (
    MISSING,
    OTHER_KIND,
    Reading,
    json_of,
    kind_of,
    media_type,
    properties_problems,
)
from django_eventbus.events.message import (
    CAUSATION,
    KEY,
    TRACEPARENT,
    TRACESTATE,
    Message,
    parsed_time,
    past,
)
from django_eventbus.events.text import storable
from django_eventbus.exceptions import Undecodable

_OTHER_TYPE = "the content type is %(type)s, but only %(read)s is supported"
_OTHER_VERSION = "specversion is %(version)s, not '1.0'"
_NO_OBJECT = "the body is %(kind)s, not an object"
_BOTH = "data and data_base64 are both present"
_NO_BASE64 = "data_base64 is not Base64"
_NO_TIME = "time is not a time in the format of RFC 3339"

_PREFIX = "cloudEvents_"
#: The AMQP binding allows both. The bus writes the one without a colon, which JMS can read.
_PREFIXES = (_PREFIX, "cloudEvents:")
_SHORT = 255
_STRUCTURED = "application/cloudevents"
_REQUIRED = ("id", "source", "type")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
#: The attributes that the bus keeps in headers of its own.
_HEADERS = {"partitionkey": KEY, "causationid": CAUSATION}
#: Attributes of the distributed tracing extension. Their headers have the same names.
_TRACE = (TRACEPARENT, TRACESTATE)


def written(message: Message) -> Message:
    """Return *message* with its attributes as headers; the body does not change."""
    attributes = {
        "specversion": "1.0",
        "id": message.id,
        "source": message.source,
        "type": message.type,
        "time": message.sent_at.isoformat() if message.sent_at else "",
        "correlationid": message.correlation_id,
        **{name: message.text(header) for name, header in _HEADERS.items()},
        **_trace_in(message.headers),
    }
    added = {f"{_PREFIX}{name}": value for name, value in attributes.items() if value}
    return replace(message, headers={**message.headers, **added})


def with_payload(message: Message, body: bytes) -> Message | None:
    """Return *message* with other data and its own id; None if it is not a CloudEvent."""
    if is_binary(message):
        prefix = next(each for each in _PREFIXES if f"{each}specversion" in message.headers)
        headers = {**message.headers, f"{prefix}id": message.id}
        return replace(message, body=body, content_type="application/json", headers=headers)
    if not is_structured(message):
        return None
    try:
        event = _object_of(message)
    except Undecodable:
        return None
    event.pop("data_base64", None)
    return replace(message, body=encode({**event, "id": message.id, "data": Raw(body)}))


def is_structured(message: Message) -> bool:
    return message.content_type.lower().startswith(_STRUCTURED)


def is_binary(message: Message) -> bool:
    return any(f"{prefix}specversion" in message.headers for prefix in _PREFIXES)


def read_structured(message: Message) -> Reading:
    """Read an event whose attributes and data are in the body."""
    try:
        body = _object_of(message)
        payload = _data_of(body)
    except Undecodable as error:
        return Reading(message=message, problems=(str(error),))
    attributes = {name: each for name, each in body.items() if name not in ("data", "data_base64")}
    return _read(message, attributes, payload)


def _object_of(message: Message) -> dict[str, Any]:
    if media_type(message.content_type) != f"{_STRUCTURED}+json":
        kind = media_type(message.content_type)
        raise Undecodable(_OTHER_TYPE % {"type": kind[:100], "read": f"{_STRUCTURED}+json"})
    body = json_of(message.body, "")
    if not isinstance(body, dict):
        raise Undecodable(_NO_OBJECT % {"kind": kind_of(body)})
    return body


def _data_of(body: Mapping[str, Any]) -> Any:
    if "data_base64" not in body:
        return body.get("data", {})
    if "data" in body:
        raise Undecodable(_BOTH)
    try:
        data = base64.b64decode(body["data_base64"], validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise Undecodable(_NO_BASE64) from None
    return json_of(data, _json_type(str(body.get("datacontenttype") or "")))


def read_binary(message: Message) -> Reading:
    """Read an event whose attributes are headers and whose data is the body."""
    attributes = {
        name.removeprefix(prefix): value
        for prefix in reversed(_PREFIXES)
        for name, value in message.headers.items()
        if name.startswith(prefix)
    }
    try:
        payload = json_of(message.body, _json_type(message.content_type)) if message.body else {}
    except Undecodable as error:
        return _read(message, attributes, UNSET, str(error))
    return _read(message, attributes, payload)


def _json_type(content_type: str) -> str:
    return "" if media_type(content_type).endswith("+json") else content_type


def _read(message: Message, attributes: Mapping[str, Any], payload: Any, *problems: str) -> Reading:
    found = (*_problems_with(attributes), *problems)
    if not found:
        message = _with_attributes(message, attributes)
        found = tuple(properties_problems(message))
    return Reading(message=message, payload=payload, problems=found)


def _problems_with(attributes: Mapping[str, Any]) -> Iterator[str]:
    version = attributes.get("specversion")
    if not isinstance(version, str) or not version.startswith("1."):
        yield _OTHER_VERSION % {"version": repr(version)[:20]}
    for name in _REQUIRED:
        value = attributes.get(name)
        if value is None or value == "":
            yield MISSING % {"name": name}
        elif not isinstance(value, str):
            yield OTHER_KIND % {"name": name, "kind": kind_of(value), "wanted": "text"}
    if attributes.get("time") and _time_of(attributes) is None:
        yield _NO_TIME


def _time_of(attributes: Mapping[str, Any]) -> datetime | None:
    value = attributes.get("time")
    # AMQP has a type for timestamps in headers.
    text = value.isoformat() if isinstance(value, datetime) else str(value or "")
    return parsed_time(text)


def _sent_at(attributes: Mapping[str, Any]) -> datetime | None:
    """Return the time, or None if brokers or databases cannot store it."""
    time = past(_time_of(attributes))
    try:
        return time.astimezone(UTC) if time and time.timestamp() > 0 else None
    except OverflowError:
        return None


def _short(text: str) -> str:
    """Cut *text* to the size of an AMQP property."""
    return storable(text, _SHORT).encode()[:_SHORT].decode(errors="ignore")


def _with_attributes(message: Message, attributes: Mapping[str, Any]) -> Message:
    headers = {**message.headers}
    for name, header in _HEADERS.items():
        if isinstance(attributes.get(name), str):
            headers.setdefault(header, attributes[name])
    if TRACEPARENT not in headers:
        headers |= _trace_in(attributes)
    correlation = attributes.get("correlationid")
    return replace(
        message,
        id=_id_of(attributes),
        type=attributes["type"],
        source=_short(attributes["source"]),
        sent_at=_sent_at(attributes) or message.sent_at,
        correlation_id=_short(correlation)
        if isinstance(correlation, str)
        else message.correlation_id,
        headers=headers,
        extra=dict(attributes),
    )


def _trace_in(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: values[name] for name in _TRACE if isinstance(values.get(name), str)}


def _id_of(attributes: Mapping[str, Any]) -> str:
    # An id is unique only for its source: if two services number their events, the inbox would
    # take those of one for duplicates.
    name: str = attributes["id"]
    return name if _UUID.fullmatch(name) else f"{attributes['source']}#{name}"
