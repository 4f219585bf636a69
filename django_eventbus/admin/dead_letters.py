"""Dead letters: what failed, why, and what is done about it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_eventbus.admin.carried_messages import MESSAGE_FIELDS, CarriedMessageAdmin
from django_eventbus.admin.dead_letter_list import list_view
from django_eventbus.admin.dead_letter_verbs import DISCARD
from django_eventbus.admin.dry_run import dry_run_view
from django_eventbus.admin.excerpts import text_of
from django_eventbus.admin.failure_groups import group_view, groups_view
from django_eventbus.admin.outcomes import outcome_in_words
from django_eventbus.admin.pages import Button, View, button, page_urls, url_of
from django_eventbus.admin.timelines import timeline_of
from django_eventbus.models import DeadLetter
from django_eventbus.permissions import may


@admin.register(DeadLetter)
class DeadLetterAdmin(CarriedMessageAdmin):
    """Dead letters, with Re-drive and Discard."""

    verbs = (DISCARD,)
    deferred = ("body", "payload", "headers", "traceback")
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
        letter = context["original"]
        context["timeline"] = timeline_of(letter)
        context["buttons"] = self._buttons(request, letter)
        return super().render_change_form(request, context, *args, **kwargs)

    def _buttons(self, request: HttpRequest, letter: DeadLetter) -> list[Button]:
        redrive = button(
            request.user,
            "redrive",
            _("Re-drive…"),
            url_of(self, "dry_run", query=f"id={letter.pk}"),
            queue=letter.queue,
        )
        return [redrive] if letter.state in DeadLetter.REDRIVABLE else []

    def get_urls(self) -> list[URLPattern]:
        own: dict[str, tuple[str, View]] = {
            "list": ("list/", list_view),
            "group": ("groups/<str:fingerprint>/", group_view),
            "dry_run": ("dry-run/", dry_run_view),
        }
        return [*page_urls(self, own), *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        return groups_view(self, request)

    def has_view_permission(self, request: HttpRequest, obj: DeadLetter | None = None) -> bool:
        return may(request.user, "view", obj.queue if obj else "")

    def has_discard_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("eventbus.discard_deadletter")

    @admin.display(description=gettext_lazy("state"), ordering="state")
    def outcome(self, letter: DeadLetter) -> str:
        return outcome_in_words(letter)

    @admin.display(description=gettext_lazy("traceback"))
    def whole_traceback(self, letter: DeadLetter) -> str:
        return text_of(letter.traceback)
