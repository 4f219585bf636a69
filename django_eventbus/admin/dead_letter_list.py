"""The list of dead letters: filtered by its URL, a page at a time, and what can be done to it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.admin import ModelAdmin
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from django_eventbus.admin.dead_letter_verbs import buttons_for
from django_eventbus.admin.filters import canonical, filters_in, form_of, seen_by, selection_in
from django_eventbus.admin.outcomes import lines_of
from django_eventbus.admin.pages import page, require_view, url_of
from django_eventbus.admin.suggestions import absent_in
from django_eventbus.exceptions import BadSelection
from django_eventbus.matching import COUNT_LIMIT, capped_count, freeze, letters_of, page_of
from django_eventbus.models import DeadLetter
from django_eventbus.models.dead_letter import DeadLetterQuerySet
from django_eventbus.selections import Cut, Selection

SIZE = 50
#: Where a page begins: after the last row of the one before it, or before the first of the next.
_PLACES = ("after", "before")


def list_view(screen: ModelAdmin[Any], request: HttpRequest) -> HttpResponse:
    """Show a page of the dead letters that the URL names."""
    require_view(screen, request)
    query = canonical(request.GET, *_PLACES)
    if query != request.GET.urlencode():
        return redirect(url_of(screen, "list", query=query))
    using = screen.get_queryset(request).db
    pairs = filters_in(request.GET)
    context: dict[str, Any] = {
        **form_of(pairs, request.user),
        "filter_words": " ".join(f"{name}={text}" for name, text in pairs),
        "back_query": canonical(request.GET),
        "lines": [],
    }
    try:
        selection = selection_in(request.GET)
        context |= _found(screen, request, seen_by(request.user, selection, using), using)
    except BadSelection as error:
        context["problem"] = str(error)
    return page(screen, request, "dead_letter_list", _("List of dead letters"), **context)


def _found(
    screen: ModelAdmin[Any], request: HttpRequest, selection: Selection, using: str
) -> dict[str, Any]:
    # Frozen first: what is seen on this page is what moves, whatever is parked meanwhile.
    frozen = freeze(selection, using)
    letters = letters_of(frozen, using)
    shown = _rows(letters, request.GET)
    # A first page that is not full has counted them: rare words are looked for once.
    is_all = not shown.older and not any(name in request.GET for name in _PLACES)
    count = len(shown.rows) if is_all else capped_count(letters)
    return {
        "lines": lines_of(shown.rows),
        "absent": [] if count else absent_in(selection, request.user),
        "count": min(count, COUNT_LIMIT),
        "is_more": count > COUNT_LIMIT,
        "older": _beside(screen, request, after=shown.older),
        "newer": _beside(screen, request, before=shown.newer),
        "first": url_of(screen, "list", query=canonical(request.GET)),
        "is_first": not shown.newer,
        "for_all": buttons_for(screen, request.user, selection, frozen.query()),
        "for_some": buttons_for(screen, request.user, selection, ""),
        "exports": _exports(screen, frozen.query()),
    }


def _exports(screen: ModelAdmin[Any], query: str) -> list[tuple[str, str]]:
    return [
        (label, url_of(screen, "export", query=f"{query}&format={name}"))
        for name, label in (("ndjson", "NDJSON"), ("csv", "CSV"))
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The rows of a page; and those beside which another page begins, if there is one."""

    rows: list[DeadLetter]
    newer: DeadLetter | None = None
    older: DeadLetter | None = None


def _rows(letters: DeadLetterQuerySet, data: QueryDict) -> Shown:
    if place := _place(data.get("before", "")):
        rows = page_before(letters, size=SIZE + 1, place=place)
        if len(rows) > SIZE:
            return Shown(rows=rows[1:], newer=rows[1], older=rows[-1])
        # So few are newer that it is the first page, which shall be a full one.
        data = QueryDict()
    place = _place(data.get("after", ""))
    rows = page_of(letters, size=SIZE + 1, after=place)
    shown = rows[:SIZE]
    newer = shown[0] if place and shown else None
    return Shown(rows=shown, newer=newer, older=shown[-1] if len(rows) > SIZE else None)


def page_before(
    letters: DeadLetterQuerySet, *, size: int, place: tuple[datetime, int]
) -> list[DeadLetter]:
    """Return the page that ends before *place*, (parked_at, pk); the latest first, as page_of()."""
    parked_at, key = place
    # As in page_of(): the first condition is for the index.
    newer = letters.filter(parked_at__gte=parked_at)
    newer = newer.filter(Q(parked_at__gt=parked_at) | Q(pk__gt=key))
    found = newer.order_by("parked_at", "pk").defer("body", "traceback", "payload", "headers")
    return list(found[:size])[::-1]


def _beside(screen: ModelAdmin[Any], request: HttpRequest, **rows: DeadLetter | None) -> str:
    """Return the URL of the page that begins *after* or *before* a row; "" without one."""
    data = request.GET.copy()
    for name in _PLACES:
        data.pop(name, None)
    for name, row in rows.items():
        if row is None:
            return ""
        data[name] = str(Cut(at=row.parked_at, highest=row.pk))
    return url_of(screen, "list", query=canonical(data, *_PLACES))


def _place(text: str) -> tuple[datetime, int] | None:
    try:
        place = Cut.read(text) if text else None
    except ValueError:
        raise BadSelection(_("There is no such page.")) from None
    return (place.at, place.highest) if place else None
