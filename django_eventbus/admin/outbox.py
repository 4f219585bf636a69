"""The outbox: what is on its way out, what has left, and what could not."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.timesince import timeuntil
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_eventbus.admin.carried_messages import MESSAGE_FIELDS, CarriedMessageAdmin
from django_eventbus.admin.confirmation import Verb
from django_eventbus.admin.excerpts import short
from django_eventbus.admin.read_only import QueueFilter, SubscriptionFilter, TypeFilter, ago
from django_eventbus.models import OutboxEvent


class PublishAgain(Verb):
    """Give unroutable and failed rows another chance."""

    name = "publish_again"
    title = gettext_lazy("Publish outbox events again")
    question = gettext_lazy("The relay sends each again, as it stands.")
    button = gettext_lazy("Publish again")
    states = (OutboxEvent.State.UNROUTABLE, OutboxEvent.State.FAILED)
    stamp = "state"
    grouped_by = ("state", "type", "routing_key")

    def do(self, row: OutboxEvent, *, by: str, reason: str, using: str) -> bool:
        return OutboxEvent.objects.using(using).filter(pk=row.pk).publish_again() == 1

    def record(self, row: OutboxEvent, reason: str) -> str:
        return _("Published again. It was %(state)s: %(error)s") % {
            "state": row.get_state_display(),
            "error": row.error,
        }

    def forecast(self, count: int) -> str:
        return ngettext("%d will be sent again", "%d will be sent again", count) % count

    def summary(self, done: int, left: int) -> str:
        moved = ngettext("%d is sent again", "%d are sent again", done) % done
        if not left:
            return f"{moved}."
        words = ngettext("%d was no longer unsent", "%d were no longer unsent", left) % left
        return f"{moved}, {words}."


PUBLISH_AGAIN = PublishAgain()


@admin.register(OutboxEvent)
class OutboxEventAdmin(CarriedMessageAdmin):
    """Outbox events, newest first."""

    verbs = (PUBLISH_AGAIN,)
    actions = ("publish_again",)
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

    @admin.action(permissions=["publish_again"], description=PUBLISH_AGAIN.title)
    def publish_again(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse:
        return self.ask(PUBLISH_AGAIN, request, queryset)

    def has_publish_again_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("eventbus.change_outboxevent")

    @admin.display(description=gettext_lazy("state"), ordering="state")
    def outlook(self, row: OutboxEvent) -> str:
        state = row.get_state_display()
        if row.state != OutboxEvent.State.SCHEDULED or row.due_at is None:
            return state
        return _("%(state)s, due in %(time)s") % {"state": state, "time": timeuntil(row.due_at)}

    @admin.display(description=gettext_lazy("addressed to"))
    def addressed_to(self, row: OutboxEvent) -> str:
        return row.subscription or row.queue

    @admin.display(description=gettext_lazy("created"), ordering="created_at")
    def created(self, row: OutboxEvent) -> str:
        return ago(row.created_at)

    @admin.display(description=gettext_lazy("error"))
    def what_failed(self, row: OutboxEvent) -> str:
        return short(row.error)
