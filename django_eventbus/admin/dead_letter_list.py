"""The list of dead letters: filtered by its URL, a page at a time, and what can be done to it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib.admin import ModelAdmin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from django_eventbus.admin.dead_letter_verbs import buttons_for
from django_eventbus.admin.filters import canonical, filters_in, form_of, seen_by, selection_in
from django_eventbus.admin.outcomes import lines_of
from django_eventbus.admin.pages import page, require_view, url_of
from django_eventbus.exceptions import BadSelection
from django_eventbus.matching import COUNT_LIMIT, capped_count, freeze, letters_of, page_of
from django_eventbus.models import DeadLetter
from django_eventbus.selections import Selection

SIZE = 50


def list_view(screen: ModelAdmin[Any], request: HttpRequest) -> HttpResponse:
    """Show a page of the dead letters that the URL names."""
    require_view(screen, request)
    query = canonical(request.GET, "after")
    if query != request.GET.urlencode():
        return redirect(url_of(screen, "list", query=query))
    using = screen.get_queryset(request).db
    pairs = filters_in(request.GET)
    context: dict[str, Any] = {
        "form": form_of(pairs),
        "filter_words": " ".join(f"{name}={text}" for name, text in pairs),
        # What the form has no field for, and must not forget.
        "kept": [pair for pair in pairs if pair[0] in ("group", "source", "id")],
        "lines": [],
    }
    try:
        selection = selection_in(request.GET, request.user)
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
    place = _place(request.GET.get("after", ""))
    rows = page_of(letters, size=SIZE + 1, after=place)
    # A first page that is not full has counted them: rare words are looked for once.
    count = capped_count(letters) if place or len(rows) > SIZE else len(rows)
    return {
        "lines": lines_of(rows[:SIZE]),
        "count": min(count, COUNT_LIMIT),
        "is_more": count > COUNT_LIMIT,
        "older": _older(screen, request, rows),
        "first": url_of(screen, "list", query=canonical(request.GET)),
        "is_first": "after" not in request.GET,
        "for_all": buttons_for(screen, request.user, selection, frozen.query()),
        "for_some": buttons_for(screen, request.user, selection, ""),
        "exports": _exports(screen, frozen.query()),
    }


def _exports(screen: ModelAdmin[Any], query: str) -> list[tuple[str, str]]:
    return [
        (label, url_of(screen, "export", query=f"{query}&format={name}"))
        for name, label in (("ndjson", "NDJSON"), ("csv", "CSV"))
    ]


def _older(screen: ModelAdmin[Any], request: HttpRequest, rows: list[DeadLetter]) -> str:
    if len(rows) <= SIZE:
        return ""
    data = request.GET.copy()
    data["after"] = f"{rows[SIZE - 1].parked_at.isoformat()}~{rows[SIZE - 1].pk}"
    return url_of(screen, "list", query=canonical(data, "after"))


def _place(text: str) -> tuple[datetime, int] | None:
    parked_at, _tilde, key = text.rpartition("~")
    try:
        return (datetime.fromisoformat(parked_at), int(key)) if text else None
    except ValueError:
        raise BadSelection(_("There is no such page.")) from None
