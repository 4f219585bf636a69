"""The audit: what people did, and what came of it. Read-only, for ever."""

from __future__ import annotations

from urllib.parse import unquote_plus

from django.contrib import admin
from django.db import DEFAULT_DB_ALIAS
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from django_eventbus.admin.audit_outcomes import result_in_words
from django_eventbus.admin.excerpts import short, text_of
from django_eventbus.admin.filters import in_words
from django_eventbus.admin.read_only import PlainReadOnlyAdmin
from django_eventbus.exceptions import BadSelection
from django_eventbus.models import AuditEntry
from django_eventbus.selections import Selection
from django_eventbus.sentences import translated

#: Characters of a selection that are read for a column: one of ids can be very long.
MOST_READ = 1000


@admin.register(AuditEntry)
class AuditEntryAdmin(PlainReadOnlyAdmin):
    """Entries, the latest first."""

    ordering = ("-at", "-id")
    list_display = ("at", "by", "verb", "count", "because", "selection", "plan", "result")
    list_filter = ("verb", "at")
    search_fields = ("by__exact", "filter__contains")
    search_help_text = _("Who did it, or words of the selection")
    fields = ("at", "by", "verb", "count", "whole_reason", "whole_selection", "plan", "result")
    readonly_fields = ("whole_reason", "whole_selection", "plan", "result")

    @admin.display(description=_("reason"))
    def because(self, entry: AuditEntry) -> str:
        return short(_why(entry))

    @admin.display(description=_("selection"))
    def selection(self, entry: AuditEntry) -> str:
        return short(said(entry.filter, entry._state.db or DEFAULT_DB_ALIAS))

    @admin.display(description=_("reason"))
    def whole_reason(self, entry: AuditEntry) -> str:
        return text_of(_why(entry))

    @admin.display(description=_("selection"))
    def whole_selection(self, entry: AuditEntry) -> str:
        return text_of(entry.filter)

    @admin.display(description=_("plan"), ordering="plan_id")
    def plan(self, entry: AuditEntry) -> str:
        if entry.plan_id is None:
            return "-"
        url = reverse("admin:eventbus_plan_change", args=[entry.plan_id])
        return format_html('<a href="{}">{}</a>', url, entry.plan_id)

    @admin.display(description=_("what came of it"))
    def result(self, entry: AuditEntry) -> str:
        return short(result_in_words(entry.outcome)) if entry.outcome else "-"


def _why(entry: AuditEntry) -> str:
    """Return why it was done: as a person said it, or as a plan says it of itself."""
    return translated(entry.why) if entry.verb in AuditEntry.BY_PLANS else entry.why


def said(query: str, using: str) -> str:
    """Say what a selection that was written down is about, groups by their failures."""
    if len(query) > MOST_READ:
        return unquote_plus(query[:MOST_READ])
    try:
        return in_words(Selection.from_query(query), using) if query else "-"
    except BadSelection:
        return unquote_plus(query)
