"""The trace that a message belongs to, as its headers have it by W3C Trace Context. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django_eventbus.messages import TRACEPARENT, TRACESTATE

_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}"
)
#: Characters that the standard asks everybody to carry; what is longer may be left out.
_LONGEST_STATE = 512


def ids_in(headers: Mapping[str, Any], name: str = TRACEPARENT) -> dict[str, str]:
    """Return trace_id and span_id of the context in the header *name*; nothing if it is none."""
    value = headers.get(name)
    found = _TRACEPARENT.fullmatch(value) if isinstance(value, str) else None
    return {"trace_id": found[1], "span_id": found[2]} if found else {}


def trace_id_in(headers: Mapping[str, Any]) -> str:
    """Return the id of the trace that *headers* name, as 32 hexadecimal digits, or ""."""
    return ids_in(headers).get("trace_id", "")


def carrier_of(headers: Mapping[str, Any]) -> dict[str, str]:
    """Return the creation context as propagators read it; nothing if there is none."""
    if not ids_in(headers):
        return {}
    state = headers.get(TRACESTATE)
    is_carried = isinstance(state, str) and len(state) <= _LONGEST_STATE
    return {TRACEPARENT: headers[TRACEPARENT]} | ({TRACESTATE: state} if is_carried else {})
