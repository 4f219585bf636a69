"""Which headers a user may set. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django_eventbus.messages import is_storable
from django_eventbus.sentences import gettext_noop as _
from django_eventbus.sentences import known

_SHORT = 255

_NO_NAME = known(_("header %(name)s is not a name of at most 255 bytes"))
_RESERVED = known(_("header %(name)s is reserved: x-*, eventbus-*, CC and BCC are the bus's own"))
_NO_VALUE = known(_("header %(name)s is a %(type)s; write text, a whole number or a bool"))
_TOO_BIG = known(_("header %(name)s does not fit 64 bits"))
_NOT_STORABLE = known(_("header %(name)s holds a NUL or a lone surrogate"))


def headers_problem(headers: Mapping[Any, Any]) -> str:
    """Say what is wrong with a user's headers, or return ""."""
    for name, value in headers.items():
        if not isinstance(name, str) or not 0 < len(name.encode(errors="replace")) <= _SHORT:
            return _NO_NAME % {"name": repr(name)}
        if is_reserved(name):
            return _RESERVED % {"name": repr(name)}
        if not isinstance(value, str | int):
            return _NO_VALUE % {"name": repr(name), "type": type(value).__name__}
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            return _TOO_BIG % {"name": repr(name)}
        if not is_storable(name) or not is_storable(str(value)):
            return _NOT_STORABLE % {"name": repr(name)}
    return ""


def is_reserved(name: str) -> bool:
    return name.lower().startswith(("x-", "eventbus-")) or name.lower() in ("cc", "bcc")
