"""The native wire format, and the functions that all formats share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from django_eventbus.events.message import FORMAT, VERSION, Message, id_problem
from django_eventbus.events.text import is_storable, storable
from django_eventbus.exceptions import Undecodable

MISSING = "%(name)s is missing"
OTHER_KIND = "%(name)s is %(kind)s, not %(wanted)s"
#: The names of the JSON types in messages for people.
_NAMES = {
    dict: "an object",
    list: "an array",
    str: "text",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    type(None): "null",
}
_OTHER_TYPE = "the content type is %(type)s, not application/json"
_NOT_JSON = "the body is not JSON: %(error)s"
_TOO_DEEP = "the body is nested too deeply"
_TOO_LARGE = "the body has %(size)s bytes; MAX_BODY_BYTES is %(limit)s"
_NO_TYPE = "the message has no usable type"
_SHORT = 255


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was read by its format: its properties, its payload and its problems."""

    message: Message
    #: UNSET if the body could not be decoded.
    payload: Any = msgspec.UNSET
    problems: tuple[str, ...] = ()


def kind_of(value: object) -> str:
    """Return the name of the type of *value* for people, such as "an object"."""
    return _NAMES.get(type(value), f"a {type(value).__name__}")


def read(message: Message) -> Reading:
    problems = [*properties_problems(message)]
    payload: Any = msgspec.UNSET
    try:
        payload = json_of(message.body, message.content_type)
    except Undecodable as error:
        problems.append(str(error))
    return Reading(message=message, payload=payload, problems=tuple(problems))


def with_payload(message: Message, body: bytes) -> Message:
    """Return *message* with *body*, without the headers of other formats."""
    headers = {
        name: value
        for name, value in message.headers.items()
        if name != FORMAT and not name.startswith("cloudEvents")
    }
    # With a version header, the message is native even if its payload looks like an envelope.
    headers[VERSION] = message.version
    return replace(message, body=body, content_type="application/json", headers=headers)


def json_of(body: bytes, content_type: str) -> Any:
    """Decode *body*, or raise Undecodable."""
    if not is_json(content_type):
        raise Undecodable(_OTHER_TYPE % {"type": storable(content_type, 100)})
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Undecodable(_NOT_JSON % {"error": error}) from None
    except RecursionError:
        raise Undecodable(_TOO_DEEP) from None


def is_json(content_type: str) -> bool:
    return media_type(content_type) in ("", "application/json")


def media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def properties_problems(message: Message) -> Iterator[str]:
    """Yield the problems of the id and the type."""
    if problem := id_problem(message.id):
        yield problem
    size = len(message.type.encode(errors="replace"))
    if not 0 < size <= _SHORT or not is_storable(message.type):
        yield _NO_TYPE


def size_problem(message: Message, limit: int) -> str:
    if len(message.body) <= limit:
        return ""
    return _TOO_LARGE % {"size": len(message.body), "limit": limit}
