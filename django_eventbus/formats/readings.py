"""Reading: what a message means. A value."""

from __future__ import annotations

from typing import Any

import msgspec

from django_eventbus.messages import Message
from django_eventbus.sentences import gettext_noop as _
from django_eventbus.sentences import known


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A message as its format means it, its payload, and what is wrong with it."""

    message: Message
    #: UNSET if it could not be decoded.
    payload: Any = msgspec.UNSET
    problems: tuple[str, ...] = ()


MISSING = known(_("%(name)s is missing"))
OTHER_KIND = known(_("%(name)s is %(kind)s, not %(wanted)s"))
#: What JSON calls its values.
_NAMES = {
    dict: _("an object"),
    list: _("an array"),
    str: _("text"),
    bool: _("a boolean"),
    int: _("a number"),
    float: _("a number"),
    type(None): "null",
}


def kind_of(value: object) -> str:
    """Return what *value* is in JSON, or else in a broker's table, for people."""
    return _NAMES.get(type(value), f"a {type(value).__name__}")
