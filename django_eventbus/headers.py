"""Which headers a user may set. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django_eventbus.messages import is_storable

_SHORT = 255


def headers_problem(headers: Mapping[Any, Any]) -> str:
    """Say what is wrong with a user's headers, or return ""."""
    for name, value in headers.items():
        if not isinstance(name, str) or not 0 < len(name.encode(errors="replace")) <= _SHORT:
            return f"header {name!r} is not a name of at most 255 bytes"
        if is_reserved(name):
            return f"header {name!r} is reserved: x-*, eventbus-*, CC and BCC are the bus's own"
        if not isinstance(value, str | int):
            return (
                f"header {name!r} is a {type(value).__name__}; write text, a whole number or a bool"
            )
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            return f"header {name!r} does not fit 64 bits"
        if not is_storable(name) or not is_storable(str(value)):
            return f"header {name!r} holds a NUL or a lone surrogate"
    return ""


def is_reserved(name: str) -> bool:
    return name.lower().startswith(("x-", "eventbus-")) or name.lower() in ("cc", "bcc")
