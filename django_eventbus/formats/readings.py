"""Reading: what a message means. A value."""

from __future__ import annotations

from typing import Any

import msgspec

from django_eventbus.messages import Message


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A message as its format means it, its payload, and what is wrong with it."""

    message: Message
    #: UNSET if it could not be decoded.
    payload: Any = msgspec.UNSET
    problems: tuple[str, ...] = ()


#: What JSON calls its values.
_NAMES = {
    dict: "an object",
    list: "an array",
    str: "text",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    type(None): "null",
}


def kind_of(value: object) -> str:
    """Return what *value* is in JSON, or else in a broker's table, for people."""
    return _NAMES.get(type(value), f"a {type(value).__name__}")
