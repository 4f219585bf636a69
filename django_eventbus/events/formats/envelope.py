"""The envelope of nano-service: the body is an object of meta, payload, status and system."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from django_eventbus.conf import conf
from django_eventbus.events.formats import native
from django_eventbus.events.formats.native import (
    MISSING,
    OTHER_KIND,
    Reading,
    kind_of,
    size_problem,
)
from django_eventbus.events.message import (
    DEBUG,
    FORMAT,
    TRACEPARENT,
    TRACESTATE,
    VERSION,
    Message,
    is_reserved,
)
from django_eventbus.exceptions import InvalidEvent

_NO_ENVELOPE = "the body is %(kind)s, not an object of meta, payload, status and system"
_NO_SOURCE = "the message has no app_id"

_NAME = "envelope"
_BESIDE = ("meta", "status", "system")
_PARTS = {*_BESIDE, "payload"}
#: An object with at least this many parts and no other keys counts as an envelope.
_ENOUGH = 3


def written(message: Message) -> Message:
    """Return *message* with its payload in an envelope; its meta has the headers of the user."""
    if message.body[:1] not in (b"{", b"["):
        raise InvalidEvent("payload must be an object or an array if FORMAT is envelope")
    body = msgspec.json.encode(
        {
            "meta": {name: each for name, each in message.headers.items() if _is_users(name)},
            "payload": msgspec.Raw(message.body),
            "status": {},
            "system": {"is_debug": message.is_debug},
        }
    )
    enveloped = replace(message, body=body, headers={**message.headers, FORMAT: _NAME})
    if problem := size_problem(enveloped, conf.max_body_bytes):
        raise InvalidEvent(f"{problem}. Publish a reference to the data instead.")
    return enveloped


def _is_users(name: str) -> bool:
    # Without the headers of tracing: the body must not depend on whether tracing is on.
    return not is_reserved(name) and name not in (TRACEPARENT, TRACESTATE)


def is_meant(reading: Reading) -> bool:
    """Whether the JSON is meant as an envelope, even if it is not a valid one."""
    headers = reading.message.headers
    if headers.get(FORMAT) == _NAME:
        return True
    # This package marks its envelopes, so this is a native message whatever its payload looks like.
    if VERSION in headers:
        return False
    return conf.format == _NAME or _has_envelope_keys(reading.payload)


def _has_envelope_keys(value: object) -> bool:
    if not isinstance(value, dict) or not value.keys() & _PARTS:
        return False
    is_pure = not value.keys() - _PARTS and len(value) >= _ENOUGH
    return is_pure or value.keys() >= _PARTS


def read(reading: Reading) -> Reading:
    """Return the payload of the envelope, or all of its problems."""
    message, parts = reading.message, reading.payload
    problems = list(reading.problems)
    if not message.source:
        problems.append(_NO_SOURCE)
    if parts is not msgspec.UNSET:
        problems += _problems_with(parts)
    if problems:
        return Reading(message=message, problems=tuple(problems))
    return Reading(message=_with_parts(message, parts), payload=_payload(message, parts))


def _problems_with(parts: object) -> Iterator[str]:
    if not isinstance(parts, dict):
        yield _NO_ENVELOPE % {"kind": kind_of(parts)}
        return
    for name in ("meta", "payload", "status", "system"):
        if name not in parts:
            yield MISSING % {"name": name}
        elif not _fits(name, parts[name]):
            wanted = "an object or an array" if name == "payload" else "an object"
            yield OTHER_KIND % {"name": name, "kind": kind_of(parts[name]), "wanted": wanted}
    flag = _object(parts.get("system")).get("is_debug")
    if flag is not None and not isinstance(flag, bool):
        values = {"name": "system.is_debug", "kind": kind_of(flag), "wanted": "a boolean"}
        yield OTHER_KIND % values


def _fits(name: str, value: object) -> bool:
    # PHP writes an empty object as an empty array.
    is_empty = value == [] and isinstance(value, list)
    return isinstance(value, dict) or is_empty or (name == "payload" and isinstance(value, list))


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _with_parts(message: Message, parts: Mapping[str, Any]) -> Message:
    extra = {name: _object(parts[name]) for name in _BESIDE}
    is_debug = message.is_debug or extra["system"].get("is_debug") is True
    headers = {**message.headers, DEBUG: True} if is_debug else message.headers
    return replace(message, headers=headers, extra=extra)


def _payload(message: Message, parts: Mapping[str, Any]) -> Any:
    payload = parts["payload"]
    is_ours = message.headers.get(FORMAT) == _NAME
    return {} if payload == [] and not is_ours else payload


def with_payload(message: Message, body: bytes) -> Message | None:
    """Return *message* with another payload, or None if it is not an envelope."""
    parts = _raw_parts(message)
    if parts is None or not is_meant(native.read(message)):
        return None
    return replace(message, body=msgspec.json.encode({**parts, "payload": msgspec.Raw(body)}))


def _raw_parts(message: Message) -> dict[str, msgspec.Raw] | None:
    # Raw: the parts that are not changed keep their bytes.
    try:
        return msgspec.json.decode(message.body, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def blamed(message: Message, error: str) -> Message:
    """Return *message* with *error* as system.consumer_error if it is an envelope."""
    parts = _raw_parts(message)
    if parts is None or not is_meant(native.read(message)):
        return message
    try:
        system = msgspec.json.decode(parts["system"], type=dict[str, msgspec.Raw] | list[None])
    except (msgspec.MsgspecError, KeyError):
        return message
    with_error = {**_object(system), "consumer_error": error}
    changed = replace(message, body=msgspec.json.encode({**parts, "system": with_error}))
    return message if size_problem(changed, conf.max_body_bytes) else changed
