"""Dead letters: what failed, why, and what is done about it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_eventbus.admin.carried_messages import MESSAGE_FIELDS, CarriedMessageAdmin
from django_eventbus.admin.dead_letter_verbs import DISCARD, REDRIVE
from django_eventbus.admin.excerpts import short, text_of, visible
from django_eventbus.admin.read_only import (
    ErrorTypeFilter,
    QueueFilter,
    SubscriptionFilter,
    TypeFilter,
    ago,
)
from django_eventbus.admin.timelines import timeline_of
from django_eventbus.models import DeadLetter


@admin.register(DeadLetter)
class DeadLetterAdmin(CarriedMessageAdmin):
    """Dead letters, with Re-drive and Discard."""

    verbs = (REDRIVE, DISCARD)
    actions = ("redrive", "discard")
    deferred = ("body", "payload", "headers", "traceback")
    ordering = ("-parked_at",)
    list_display = ("type", "place", "outcome", "parked", "what_failed")
    list_filter = (
        "state", "kind", TypeFilter, QueueFilter, SubscriptionFilter, ErrorTypeFilter, "parked_at",
    )  # fmt: skip
    search_fields = (
        "message_id__startswith", "correlation_id__exact", "type__startswith", "error__icontains",
    )  # fmt: skip
    search_help_text = gettext_lazy("Message id, correlation id, type, or words of the error")
    fieldsets = (
        (None, {"fields": ("outcome", "subscription", "queue", "kind", "attempts", "round")}),
        (
            gettext_lazy("Failure"),
            {"fields": ("error_type", "whole_error", "whole_traceback", "host", "parked_at")},
        ),
        (
            gettext_lazy("Message"),
            {"fields": (*MESSAGE_FIELDS, "fingerprint")},
        ),
        (
            gettext_lazy("What was done"),
            {
                "classes": ["collapse"],
                "fields": ("created_at", "redriven_at", "redriven_by", "closed_at", "note"),
            },
        ),
    )
    readonly_fields = (*CarriedMessageAdmin.readonly_fields, "outcome", "whole_traceback")

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        context["timeline"] = timeline_of(context["original"])
        return super().render_change_form(request, context, *args, **kwargs)

    @admin.action(permissions=["redrive"], description=REDRIVE.title)
    def redrive(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse:
        return self.ask(REDRIVE, request, queryset)

    @admin.action(permissions=["discard"], description=DISCARD.title)
    def discard(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse:
        return self.ask(DISCARD, request, queryset)

    def has_redrive_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("eventbus.redrive_deadletter")

    def has_discard_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("eventbus.discard_deadletter")

    @admin.display(description=gettext_lazy("subscription"), ordering="subscription")
    def place(self, letter: DeadLetter) -> str:
        return letter.subscription or _("none, on %(queue)s") % {"queue": letter.queue}

    @admin.display(description=gettext_lazy("state"), ordering="state")
    def outcome(self, letter: DeadLetter) -> str:
        return outcome_in_words(letter)

    @admin.display(description=gettext_lazy("error"), ordering="error_type")
    def what_failed(self, letter: DeadLetter) -> str:
        return short(f"{letter.error_type}: {letter.error}")

    @admin.display(description=gettext_lazy("parked"), ordering="parked_at")
    def parked(self, letter: DeadLetter) -> str:
        return ago(letter.parked_at)

    @admin.display(description=gettext_lazy("traceback"))
    def whole_traceback(self, letter: DeadLetter) -> str:
        return text_of(letter.traceback)


def outcome_in_words(letter: DeadLetter) -> str:
    """Say what has become of the dead letter so far."""
    words = {"round": letter.round, "note": visible(letter.note)}
    match letter.state:
        case DeadLetter.State.OPEN if letter.round:
            return _("failed again in round %(round)d") % words
        case DeadLetter.State.REDRIVING:
            return _("re-driving in round %(round)d") % words
        case DeadLetter.State.UNKNOWN:
            return _("unanswered: %(note)s") % words
        case DeadLetter.State.DISCARDED:
            return _("discarded: %(note)s") % words
        case DeadLetter.State.HEALED if letter.round:
            return _("healed in round %(round)d") % words
    return letter.get_state_display()
