"""The trace that a message belongs to, and the way to it."""

from __future__ import annotations

from typing import Any

from django.utils.html import format_html

from django_eventbus.conf import conf
from django_eventbus.redaction import redacted
from django_eventbus.setting_values import TRACE_ID
from django_eventbus.tracing.trace_contexts import trace_id_in


def trace_id_of(row: Any) -> str:
    """Return the id of the trace of *row*, or "" if it has none that the user may see."""
    return trace_id_in(redacted(row.headers, "headers", row.hidden))


def trace_link(trace_id: str) -> str:
    """Return *trace_id*, linked to its page if TRACE_URL says where that is."""
    if conf.trace_url is None:
        return trace_id
    url = conf.trace_url.replace(TRACE_ID, trace_id)
    return format_html('<a href="{}" rel="noreferrer">{}</a>', url, trace_id)


def without(name: str, fieldsets: Any) -> list[tuple[Any, dict[str, Any]]]:
    """Return *fieldsets* without the field *name*."""
    return [
        (title, {**options, "fields": tuple(each for each in options["fields"] if each != name)})
        for title, options in fieldsets
    ]
