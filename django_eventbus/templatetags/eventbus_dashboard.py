"""The dashboard for the template of the app's index, and filters for other templates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django import template
from django.template.context import RequestContext
from django.utils.formats import number_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from django_eventbus.durations import rough
from django_eventbus.models import DeadLetter
from django_eventbus.models.reasons import StayReason

register = template.Library()

#: As long as the last part of a UUID.
_SHORT = 12


@register.filter
def eventbus_number(count: int | None) -> str:
    """Format a count in the reader's locale; "-" if it is not known."""
    return "-" if count is None else number_format(count, force_grouping=True)


@register.filter
def eventbus_age(seconds: int | None) -> str:
    """Format a rough duration; "-" if it is not known."""
    return "-" if seconds is None else rough(seconds)


@register.filter
def eventbus_stay_reason(stay: dict[str, str]) -> str:
    """Return why a message stayed in the DLQ."""
    return StayReason(stay["reason"]).sentence(stay["detail"])


@register.filter
def eventbus_short_id(message_id: str) -> str:
    """Return the end of a long id: ids that were made together begin with the same characters."""
    return message_id if len(message_id) <= _SHORT else f"…{message_id[-_SHORT:]}"


@register.filter
def eventbus_kind(kind: str) -> str:
    """Return the label of the reason why a message was parked."""
    return str(dict(DeadLetter.Kind.choices).get(kind, kind))


@register.filter
def eventbus_labelled(
    rows: Iterable[Iterable[str]], headers: Sequence[dict[str, Any]]
) -> list[list[str]]:
    """Return the rows of Django's list, each cell with the name of its column."""
    return [[_labelled(*pair) for pair in zip(row, headers, strict=True)] for row in rows]


def _labelled(cell: str, header: dict[str, Any]) -> str:
    # Not the link, which is the row's title, nor the checkbox.
    if not cell.startswith('<td class="field-'):
        return cell
    return format_html('<td data-label="{}"{}', capfirst(header["text"]), SafeString(cell[3:]))


@register.inclusion_tag("admin/eventbus/dashboard.html", takes_context=True)
def eventbus_dashboard(context: RequestContext) -> dict[str, Any]:
    """Render the dashboard, as far as the user may see it."""
    # Imported here: to check templates, Django imports every tag library, even without its admin.
    from django_eventbus.admin.dashboard import dashboard_of
    from django_eventbus.admin.statement_limit import (
        StatementTimeout,
        limited_statements,
        timeout_text,
    )

    try:
        with limited_statements():
            return dashboard_of(context.request)
    except StatementTimeout:
        return {"denial": timeout_text()}
