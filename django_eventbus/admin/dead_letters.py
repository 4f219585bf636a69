"""Dead letters: what failed, why, and what is done about it."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_eventbus.admin.carried_messages import MESSAGE_FIELDS, CarriedMessageAdmin
from django_eventbus.admin.closing import DISCARD, IGNORE, RESTORE, verb_view
from django_eventbus.admin.copies import copies_of
from django_eventbus.admin.dead_letter_list import list_view
from django_eventbus.admin.dead_letter_verbs import buttons_of
from django_eventbus.admin.dry_run import dry_run_view
from django_eventbus.admin.edit import edit_view
from django_eventbus.admin.excerpts import text_of
from django_eventbus.admin.export import export_view
from django_eventbus.admin.failure_groups import group_view, groups_view
from django_eventbus.admin.outcomes import note_of, outcome_in_words
from django_eventbus.admin.pages import View, not_allowed, page_urls, url_of
from django_eventbus.admin.replacements import replacement_of
from django_eventbus.admin.timelines import pending_plans_of, timeline_of
from django_eventbus.admin.ways_back import of_ticked, way_to_list
from django_eventbus.conf import conf
from django_eventbus.models import DeadLetter
from django_eventbus.permissions import hidden_from, may, sees

DONE_FIELDS = (
    "created_at", "redriven_at", "redriven_by", "closed_at", "closed_by", "remark", "ignored_until",
    "edited_from", "replaced_by",
)  # fmt: skip


@admin.register(DeadLetter)
class DeadLetterAdmin(CarriedMessageAdmin):
    """Dead letters: groups first, then lists, pages and what is done."""

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
                "fields": DONE_FIELDS,
            },
        ),
    )
    readonly_fields = (*CarriedMessageAdmin.readonly_fields, "outcome", "remark", "whole_traceback")

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        letter = context["original"]
        context["timeline"] = timeline_of(request, letter)
        context["pending_plans"] = pending_plans_of(request, letter)
        context["group_url"] = url_of(self, "group", letter.fingerprint)
        context["close_url"] = way_to_list(self, request)
        context["buttons"] = buttons_of(self, request.user, letter)
        context["copies"] = copies_of(letter, hidden_from(request.user, letter.queue))
        return super().render_change_form(request, context, *args, **kwargs)

    def get_urls(self) -> list[URLPattern]:
        own: dict[str, tuple[str, View]] = {
            "list": ("list/", list_view),
            "group": ("groups/<str:fingerprint>/", group_view),
            "dry_run": ("dry-run/", of_ticked(dry_run_view)),
            "discard": ("discard/", of_ticked(partial(verb_view, DISCARD))),
            "restore": ("restore/", of_ticked(partial(verb_view, RESTORE))),
            "ignore": ("ignore/", of_ticked(partial(verb_view, IGNORE))),
            "export": ("export/", export_view),
            "edit": ("<path:object_id>/edit/", edit_view),
        }
        return [*page_urls(self, own), *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        return groups_view(self, request)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        letter = self.get_object(request, unquote(object_id)) if conf.permission else None
        if letter and self.has_view_permission(request) and not sees(request.user, [letter.queue]):
            # Without the name of the queue, which is none of their business.
            words = _("You may not see the dead letters of this queue.")
            return not_allowed(self, request, words)
        return super().change_view(request, object_id, form_url, extra_context)

    def has_view_permission(self, request: HttpRequest, obj: DeadLetter | None = None) -> bool:
        return may(request.user, "view", obj.queue if obj else "")

    @admin.display(description=gettext_lazy("state"), ordering="state")
    def outcome(self, letter: DeadLetter) -> str:
        words = outcome_in_words(letter)
        if letter.state == DeadLetter.State.REPLACED:
            return f"{words}: {replacement_of(letter).words}"
        return words

    @admin.display(description=gettext_lazy("note"))
    def remark(self, letter: DeadLetter) -> str:
        return note_of(letter) or "-"

    @admin.display(description=gettext_lazy("traceback"))
    def whole_traceback(self, letter: DeadLetter) -> str:
        return text_of(letter.traceback)
