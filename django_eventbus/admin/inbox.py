"""The pages of inbox records: the outcome of each message, per subscription."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_eventbus.admin.formatting import render_text, short
from django_eventbus.admin.model_admin import (
    QueueFilter,
    ReadOnlyAdmin,
    SubscriptionFilter,
    TypeFilter,
    ago,
)
from django_eventbus.admin.permissions import visible_queues
from django_eventbus.admin.related import MESSAGE_LOOKUP
from django_eventbus.conf import conf
from django_eventbus.durations import label
from django_eventbus.models import InboxRecord


@admin.register(InboxRecord)
class InboxRecordAdmin(ReadOnlyAdmin):
    """Inbox records, newest first."""

    ordering = ("-id",)
    # Not sortable: the table may hold millions of rows.
    sortable_by = ()
    list_display = ("type", "subscription", "state", "tried", "settled", "what_failed")
    list_filter = ("state", TypeFilter, QueueFilter, SubscriptionFilter, "settled_at")
    linked_lookups = (MESSAGE_LOOKUP,)
    search_fields = ("message_id__startswith", "type__startswith", "error__icontains")
    search_help_text = _("Message id, type, or words of the error")
    fieldsets = (
        (None, {"fields": ("state", "subscription", "queue", "message_id", "type", "source")}),
        (
            _("Outcome"),
            {"fields": ("round", "attempt", "started", "waits", "due_at", "whole_error")},
        ),
        (_("Times"), {"fields": ("sent_at", "created_at", "settled_at")}),
    )
    readonly_fields = ("waits", "whole_error")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request)
        return rows.filter(queue__in=visible_queues(request.user)) if conf.permission else rows

    @admin.display(description=_("tried"))
    def tried(self, record: InboxRecord) -> str:
        words = {"round": record.round, "attempt": record.attempt}
        if record.round:
            return gettext("attempt %(attempt)d of round %(round)d") % words
        return gettext("attempt %(attempt)d") % words

    @admin.display(description=_("settled"))
    def settled(self, record: InboxRecord) -> str:
        return ago(record.settled_at)

    @admin.display(description=_("error"))
    def what_failed(self, record: InboxRecord) -> str:
        return short(record.error_text)

    @admin.display(description=_("waits in tier"))
    def waits(self, record: InboxRecord) -> str:
        return "-" if record.delay is None else label(record.delay)

    @admin.display(description=_("error"))
    def whole_error(self, record: InboxRecord) -> str:
        return render_text(record.error_text)
