"""The way from a list of dead letters to a page about some of them, and back."""

from __future__ import annotations

from functools import wraps
from typing import Any

from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.http import HttpRequest, HttpResponseBase, QueryDict
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from django_eventbus.admin.filters import BACK
from django_eventbus.admin.pages import View, require_view, url_of
from django_eventbus.selections import Selection


def of_ticked(view: View) -> View:
    """Return *view*, to which the list sends what is ticked: without a tick, all would be meant."""

    @wraps(view)
    def answer(screen: ModelAdmin[Any], request: HttpRequest) -> HttpResponseBase:
        require_view(screen, request)
        if BACK not in request.GET or "id" in request.GET:
            return view(screen, request)
        screen.message_user(request, _("Tick some first."), messages.WARNING)
        return redirect(_list(screen, request.GET[BACK]))

    return answer


def query_of_list(request: HttpRequest) -> str:
    """Return the query of the list that one came from, or ""."""
    data = request.POST if request.method == "POST" else request.GET
    return data.get(BACK, "")


def way_to_list(screen: ModelAdmin[Any], request: HttpRequest) -> str:
    """Return the URL of the list that one came from; of the whole list, if of none."""
    return _list(screen, query_of_list(request))


def way_back(screen: ModelAdmin[Any], request: HttpRequest, selection: Selection) -> str:
    """Return the URL of the page that one came from, as it is now."""
    if query := query_of_list(request):
        return _list(screen, query)
    ids = [key for term in selection.terms if term.name == "id" for key in term.value]
    if len(ids) == 1:
        return url_of(screen, "change", ids[0])
    seen = Selection(tuple(term for term in selection.terms if term.name != "as_of"))
    return url_of(screen, "list", query=seen.query())


def _list(screen: ModelAdmin[Any], query: str) -> str:
    return url_of(screen, "list", query=QueryDict(query).urlencode())
