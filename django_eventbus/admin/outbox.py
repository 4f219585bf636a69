"""The outbox: what is on its way out, what has left, and what could not."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db import router, transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.timesince import timesince, timeuntil
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_eventbus import audit
from django_eventbus.admin.carried_messages import MESSAGE_FIELDS, CarriedMessageAdmin
from django_eventbus.admin.confirmation import Verb
from django_eventbus.admin.excerpts import short
from django_eventbus.admin.outbox_verbs import CANCEL, PUBLISH_AGAIN
from django_eventbus.admin.read_only import QueueFilter, SubscriptionFilter, TypeFilter, ago
from django_eventbus.admin.selections import Selection
from django_eventbus.conf import conf
from django_eventbus.models import OutboxEvent
from django_eventbus.permissions import queues_seen_by


@admin.register(OutboxEvent)
class OutboxEventAdmin(CarriedMessageAdmin):
    """Outbox events, newest first."""

    verbs = (PUBLISH_AGAIN, CANCEL)
    actions = ("publish_again", "cancel")
    sortable_by = ("created",)
    ordering = ("-id",)
    list_display = ("type", "outlook", "addressed_to", "key", "created", "what_failed")
    list_filter = ("state", TypeFilter, QueueFilter, SubscriptionFilter, "created_at")
    search_fields = (
        "message_id__startswith", "correlation_id__exact", "key__exact", "type__startswith",
    )  # fmt: skip
    search_help_text = gettext_lazy("Message id, correlation id, key, or type")
    fieldsets = (
        (None, {"fields": ("state", "whole_error", "created_at", "due_at", "published_at")}),
        (gettext_lazy("Addressed to"), {"fields": ("queue", "subscription")}),
        (
            gettext_lazy("Message"),
            {"fields": (*MESSAGE_FIELDS, "version", "key", "shard", "causation_id")},
        ),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request)
        # What goes to an exchange is on no queue.
        return (
            rows.filter(queue__in=["", *queues_seen_by(request.user)]) if conf.permission else rows
        )

    @admin.action(permissions=["publish_again"], description=PUBLISH_AGAIN.title)
    def publish_again(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse:
        return self.ask(PUBLISH_AGAIN, request, queryset)

    @admin.action(permissions=["cancel"], description=CANCEL.title)
    def cancel(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse:
        return self.ask(CANCEL, request, queryset)

    def has_publish_again_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("eventbus.publish_again_outboxevent")

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("eventbus.cancel_outboxevent")

    def _do(self, verb: Verb, request: HttpRequest, selection: Selection, reason: str) -> int:
        using = router.db_for_write(OutboxEvent)
        # One transaction: what is done is audited, or not done.
        with transaction.atomic(using=using):
            done = super()._do(verb, request, selection, reason)
            if done:
                by, ids = request.user.get_username(), ",".join(map(str, selection.ids))
                audit.record(
                    verb.name.replace("_", " "),
                    by=by,
                    why=reason,
                    selection=f"outbox={ids}",
                    count=done,
                    outcome={"changed": done, "left": len(selection.ids) - done},
                    using=using,
                )
        return done

    @admin.display(description=gettext_lazy("state"))
    def outlook(self, row: OutboxEvent) -> str:
        state = row.get_state_display()
        if row.state == OutboxEvent.State.READY:
            age = timesince(row.due_at or row.created_at)
            return _("%(state)s for %(time)s") % {"state": state, "time": age}
        if row.state == OutboxEvent.State.SCHEDULED and row.due_at:
            time = timeuntil(row.due_at)
            return _("%(state)s, due in %(time)s") % {"state": state, "time": time}
        return str(state)

    @admin.display(description=gettext_lazy("addressed to"))
    def addressed_to(self, row: OutboxEvent) -> str:
        return row.subscription or row.queue

    @admin.display(description=gettext_lazy("created"), ordering="id")
    def created(self, row: OutboxEvent) -> str:
        return ago(row.created_at)

    @admin.display(description=gettext_lazy("error"))
    def what_failed(self, row: OutboxEvent) -> str:
        return short(row.error)
