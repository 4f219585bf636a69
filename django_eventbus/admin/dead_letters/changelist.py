"""The list of dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.admin import ModelAdmin
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from django_eventbus.admin.dead_letters.actions import buttons_for
from django_eventbus.admin.dead_letters.filters import (
    canonical,
    filters_in,
    form_of,
    limited_to,
    selection_in,
    unknown_names,
)
from django_eventbus.admin.dead_letters.state_text import rows_for_list
from django_eventbus.admin.pages import page, page_url, require_view
from django_eventbus.dead_letters.query import (
    COUNT_LIMIT,
    capped_count,
    freeze,
    matching,
    page_of,
)
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.dead_letters.snapshot import Snapshot
from django_eventbus.exceptions import BadSelection
from django_eventbus.models import DeadLetter
from django_eventbus.models.dead_letters import DeadLetterQuerySet

PAGE_SIZE = 50
#: Parameters that say where a page begins: after a row, or before it.
_POSITIONS = ("after", "before")


def list_view(model_admin: ModelAdmin[Any], request: HttpRequest) -> HttpResponse:
    """Show a page of the dead letters that the URL names."""
    require_view(model_admin, request)
    query = canonical(request.GET, *_POSITIONS)
    if query != request.GET.urlencode():
        return redirect(page_url(model_admin, "list", query=query))
    using = model_admin.get_queryset(request).db
    pairs = filters_in(request.GET)
    context: dict[str, Any] = {
        **form_of(pairs, request.user),
        "filter_words": " ".join(f"{name}={text}" for name, text in pairs),
        "back_query": canonical(request.GET),
        "rows": [],
    }
    try:
        selection = selection_in(request.GET)
        context |= _results(model_admin, request, limited_to(request.user, selection, using), using)
    except BadSelection as error:
        context["problem"] = str(error)
    return page(model_admin, request, "dead_letter_list", _("List of dead letters"), **context)


def _results(
    model_admin: ModelAdmin[Any], request: HttpRequest, selection: Selection, using: str
) -> dict[str, Any]:
    # Freeze first, so that actions change only dead letters that this page counts.
    frozen = freeze(selection, using)
    letters = matching(frozen, using)
    shown = _page(letters, request.GET)
    # A first page that is not full is the count: a search for rare words runs once.
    is_all = not shown.older and not any(name in request.GET for name in _POSITIONS)
    count = len(shown.rows) if is_all else capped_count(letters)
    return {
        "rows": rows_for_list(shown.rows),
        "unknown_names": [] if count else unknown_names(selection, request.user),
        "count": min(count, COUNT_LIMIT),
        "has_more": count > COUNT_LIMIT,
        "older": _neighbour_url(model_admin, request, after=shown.older),
        "newer": _neighbour_url(model_admin, request, before=shown.newer),
        "first": page_url(model_admin, "list", query=canonical(request.GET)),
        "is_first": not shown.newer,
        "for_all": buttons_for(model_admin, request.user, selection, frozen.query()),
        "for_some": buttons_for(model_admin, request.user, selection, ""),
        "exports": [
            (label, page_url(model_admin, "export", query=f"{frozen.query()}&format={name}"))
            for name, label in (("ndjson", "NDJSON"), ("csv", "CSV"))
        ],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The rows of a page, and the rows next to the pages before and after it, if any."""

    rows: list[DeadLetter]
    newer: DeadLetter | None = None
    older: DeadLetter | None = None


def _page(letters: DeadLetterQuerySet, data: QueryDict) -> Page:
    if position := _position(data.get("before", "")):
        rows = page_before(letters, size=PAGE_SIZE + 1, position=position)
        if len(rows) > PAGE_SIZE:
            return Page(rows=rows[1:], newer=rows[1], older=rows[-1])
        # Too few rows are newer: this is the first page, and it is shown full.
        data = QueryDict()
    position = _position(data.get("after", ""))
    rows = page_of(letters, size=PAGE_SIZE + 1, after=position)
    shown = rows[:PAGE_SIZE]
    newer = shown[0] if position and shown else None
    return Page(rows=shown, newer=newer, older=shown[-1] if len(rows) > PAGE_SIZE else None)


def page_before(
    letters: DeadLetterQuerySet, *, size: int, position: tuple[datetime, int]
) -> list[DeadLetter]:
    """Return the page that ends before *position*, (parked_at, pk); the latest first, as page_of()."""
    parked_at, key = position
    # As in page_of(): the first condition lets the database use the index.
    newer = letters.filter(parked_at__gte=parked_at)
    newer = newer.filter(Q(parked_at__gt=parked_at) | Q(pk__gt=key))
    found = newer.order_by("parked_at", "pk").defer("body", "traceback", "payload", "headers")
    return list(found[:size])[::-1]


def _neighbour_url(
    model_admin: ModelAdmin[Any], request: HttpRequest, **rows: DeadLetter | None
) -> str:
    """Return the URL of the page that begins *after* or *before* a row; "" without one."""
    data = request.GET.copy()
    for name in _POSITIONS:
        data.pop(name, None)
    for name, row in rows.items():
        if row is None:
            return ""
        data[name] = str(Snapshot(at=row.parked_at, highest=row.pk))
    return page_url(model_admin, "list", query=canonical(data, *_POSITIONS))


def _position(text: str) -> tuple[datetime, int] | None:
    try:
        position = Snapshot.read(text) if text else None
    except ValueError:
        raise BadSelection(_("This page does not exist.")) from None
    return (position.at, position.highest) if position else None
