"""The audit: what people did, and what came of it. Read-only, for ever."""

from __future__ import annotations

import json
from urllib.parse import unquote_plus

from django.contrib import admin
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from django_eventbus.admin.excerpts import short, text_of
from django_eventbus.admin.read_only import PlainReadOnlyAdmin
from django_eventbus.models import AuditEntry
from django_eventbus.sentences import translated


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
        return short(unquote_plus(entry.filter))

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
        return short(json.dumps(entry.outcome)) if entry.outcome else "-"


def _why(entry: AuditEntry) -> str:
    """Return why it was done: as a person said it, or as a plan says it of itself."""
    return translated(entry.why) if entry.verb in AuditEntry.BY_PLANS else entry.why
