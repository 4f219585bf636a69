"""The pages of the audit: who did what, why, and with which result."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote_plus, unquote_plus

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db import DEFAULT_DB_ALIAS
from django.db.models import Q, QuerySet, TextField, Value
from django.db.models.functions import Concat
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from django_eventbus.admin.formatting import (
    TEXT_LIMIT,
    render_text,
    result_in_words,
    selection_in_words,
    short,
)
from django_eventbus.admin.model_admin import PlainReadOnlyAdmin
from django_eventbus.admin.pages import permitted_url
from django_eventbus.admin.permissions import visible_groups
from django_eventbus.conf import conf
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.exceptions import BadSelection
from django_eventbus.models import AuditEntry

#: Characters of a selection that are read for a column: a list of ids can be very long.
SELECTION_LIMIT = 1000
#: Words of a search that are used, and groups that one of them may match.
WORDS_LIMIT = 10
GROUPS_LIMIT = 200


class AuditList(ChangeList):
    """Entries, each with the URL of its plan."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = list(self.result_list)
        for row in rows:
            row.plan_url, row.viewer = plan_url(request, row), request.user
        self.result_list = rows


@admin.register(AuditEntry)
class AuditEntryAdmin(PlainReadOnlyAdmin):
    """Entries, the latest first."""

    ordering = ("-at", "-id")
    list_display = ("at", "by", "verb", "count", "because", "selection", "plan", "result")
    list_filter = ("verb", "at")
    # Django shows the search form for these; get_search_results() searches in more.
    search_fields = ("by__exact", "why__icontains", "filter__contains")
    search_help_text = _("User, or words of the reason or the selection")
    fields = (
        "at",
        "by",
        "verb",
        "count",
        "whole_reason",
        "whole_selection",
        "plan",
        "whole_result",
    )
    readonly_fields = ("whole_reason", "whole_selection", "plan", "whole_result")

    def get_changelist(self, request: HttpRequest, **options: Any) -> type[ChangeList]:
        return AuditList

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        entry: Any = super().get_object(request, object_id, from_field)
        if entry:
            # Kept on the entry: Django calls the functions of fields without the request.
            entry.plan_url, entry.viewer = plan_url(request, entry), request.user
            entry.selection_url = selection_url(request, entry)
        return entry

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        for word in search_term.split()[:WORDS_LIMIT]:
            queryset = queryset.filter(mentions(word, request.user, queryset.db))
        return queryset, False

    @admin.display(description=_("reason"))
    def because(self, entry: AuditEntry) -> str:
        return short(entry.reason_text)

    @admin.display(description=_("selection"))
    def selection(self, entry: Any) -> str:
        return short(selection_text(entry, SELECTION_LIMIT))

    @admin.display(description=_("reason"))
    def whole_reason(self, entry: AuditEntry) -> str:
        return render_text(entry.reason_text)

    @admin.display(description=_("selection"))
    def whole_selection(self, entry: Any) -> str:
        words = render_text(selection_text(entry, TEXT_LIMIT))
        if not entry.selection_url:
            return words
        return format_html('<a href="{}">{}</a>', entry.selection_url, words)

    @admin.display(description=_("plan"), ordering="plan_id")
    def plan(self, entry: Any) -> str:
        if entry.plan_id is None:
            return "-"
        if not entry.plan_url:
            return str(entry.plan_id)
        return format_html('<a href="{}">{}</a>', entry.plan_url, entry.plan_id)

    @admin.display(description=_("result"))
    def result(self, entry: AuditEntry) -> str:
        return short(result_in_words(entry.outcome)) if entry.outcome else "-"

    @admin.display(description=_("result"))
    def whole_result(self, entry: AuditEntry) -> str:
        return render_text(result_in_words(entry.outcome)) if entry.outcome else "-"


def mentions(word: str, user: Any, using: str) -> Q:
    """Match the entries that show *word* in their user, reason or selection."""
    # A selection is stored as in a URL and shown as text, with groups named by their failures.
    found = Q(by=word) | Q(why__icontains=word)
    found |= Q(filter__contains=word) | Q(filter__contains=quote_plus(word))
    parts = ("subscription", Value(" "), "error_type", Value(": "), "title")
    named = Concat(*parts, output_field=TextField())
    groups = visible_groups(user, using).annotate(words=named).filter(words__icontains=word)
    for fingerprint in groups.order_by("-created_at").values_list("pk", flat=True)[:GROUPS_LIMIT]:
        found |= Q(filter__contains=f"group={fingerprint}")
    return found


def plan_url(request: HttpRequest, entry: AuditEntry) -> str:
    """Return the URL of the plan; "" if there is none, or the user may not see plans."""
    return permitted_url(request, "plan_change", entry.plan_id) if entry.plan_id else ""


def selection_url(request: HttpRequest, entry: AuditEntry) -> str:
    """Return the list of the selected dead letters in all states; "" if it selects none."""
    address = permitted_url(request, "deadletter_list")
    is_long = len(entry.filter) > SELECTION_LIMIT
    if not entry.filter or is_long or entry.verb in AuditEntry.OF_DLQS or not address:
        return ""
    try:
        if Selection.from_query(entry.filter).redacted(conf.redact).is_redacted:
            return ""
    except BadSelection:
        return ""
    return f"{address}?{entry.filter}&state=all"


def selection_text(entry: Any, limit: int) -> str:
    """Return a recorded selection as text, with groups named by their failures."""
    query, using = entry.filter, entry._state.db or DEFAULT_DB_ALIAS
    if len(query) > limit:
        return unquote_plus(query[:limit])
    try:
        selection = Selection.from_query(query).redacted(conf.redact)
    except BadSelection:
        return unquote_plus(query)
    return selection_in_words(selection, entry.viewer, using) if query else "-"
