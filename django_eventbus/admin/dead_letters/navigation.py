"""Links back to the list a person came from."""

from __future__ import annotations

from functools import wraps
from typing import Any

from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.http import HttpRequest, HttpResponseBase, QueryDict
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from django_eventbus.admin.dead_letters.filters import BACK
from django_eventbus.admin.pages import View, page_url, require_view
from django_eventbus.dead_letters.selection import Selection


def requires_selection(view: View) -> View:
    """Return *view*, which the list's buttons lead to, so that it needs a ticked row: without, all would match."""

    @wraps(view)
    def answer(model_admin: ModelAdmin[Any], request: HttpRequest) -> HttpResponseBase:
        require_view(model_admin, request)
        if BACK not in request.GET or "id" in request.GET:
            return view(model_admin, request)
        model_admin.message_user(request, _("Select at least one dead letter."), messages.WARNING)
        return redirect(_filtered_list(model_admin, request.GET[BACK]))

    return answer


def list_query(request: HttpRequest) -> str:
    """Return the query of the list that the user came from, or ""."""
    data = request.POST if request.method == "POST" else request.GET
    return data.get(BACK, "")


def list_url(model_admin: ModelAdmin[Any], request: HttpRequest) -> str:
    """Return the URL of the list that the user came from, or of the unfiltered list."""
    return _filtered_list(model_admin, list_query(request))


def back_url(model_admin: ModelAdmin[Any], request: HttpRequest, selection: Selection) -> str:
    """Return the URL of the page that the user came from, without its snapshot."""
    if query := list_query(request):
        return _filtered_list(model_admin, query)
    ids = [key for term in selection.terms if term.name == "id" for key in term.value]
    if len(ids) == 1:
        return page_url(model_admin, "change", ids[0])
    seen = Selection(tuple(term for term in selection.terms if term.name != "as_of"))
    return page_url(model_admin, "list", query=seen.query())


def _filtered_list(model_admin: ModelAdmin[Any], query: str) -> str:
    return page_url(model_admin, "list", query=QueryDict(query).urlencode())
