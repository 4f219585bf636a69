"""The model admin of dead letters: its pages and its permissions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from math import ceil
from pprint import pformat
from shlex import quote
from textwrap import indent
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_eventbus.admin.dead_letters.actions import buttons_of
from django_eventbus.admin.dead_letters.changelist import list_view
from django_eventbus.admin.dead_letters.discard import DISCARD, IGNORE, RESTORE, verb_view
from django_eventbus.admin.dead_letters.dry_run import dry_run_view
from django_eventbus.admin.dead_letters.edit import edit_view
from django_eventbus.admin.dead_letters.export import export_view
from django_eventbus.admin.dead_letters.groups import group_view, groups_view
from django_eventbus.admin.dead_letters.navigation import list_url, requires_selection
from django_eventbus.admin.dead_letters.state_text import note_of, outcome_in_words, replacement_of
from django_eventbus.admin.dead_letters.timeline import pending_plans_of, timeline_of
from django_eventbus.admin.formatting import render_text
from django_eventbus.admin.message_admin import MESSAGE_FIELDS, MessageAdmin
from django_eventbus.admin.pages import View, not_allowed, page_url, page_urls
from django_eventbus.admin.permissions import hidden_from, may, may_see
from django_eventbus.conf import conf
from django_eventbus.dead_letters.redaction import HIDDEN, redacted
from django_eventbus.models import DeadLetter
from django_eventbus.redrive.edited_message import own_headers, payload_or_none

#: Bytes of a body that is copied into a test; a larger one belongs in a file.
BODY_LIMIT = 32 * 1024
_ROWS_LIMIT = 20
_WIDTH = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A text to copy from the page, with its title."""

    title: str
    text: str

    @property
    def rows(self) -> int:
        rows = sum(max(ceil(len(line) / _WIDTH), 1) for line in self.text.split("\n"))
        return min(rows, _ROWS_LIMIT)


def copies_of(letter: DeadLetter, rules: tuple[str, ...]) -> list[Copy]:
    """Return *letter* as texts to copy, redacted by *rules*."""
    test = Copy(title=_("As a pytest test"), text=pytest_of(letter, rules))
    command = Copy(title=_("As a command"), text=command_of(letter))
    return [test, command] if test.text else [command]


def pytest_of(letter: DeadLetter, rules: tuple[str, ...]) -> str:
    """Return a test that delivers the message to the subscription that failed; "" if it cannot."""
    payload = payload_or_none(letter) if len(bytes(letter.body)) <= BODY_LIMIT else None
    if payload is None or not letter.subscription:
        return ""
    name = re.sub(r"\W+", "_", f"{letter.subscription}_handles_{letter.type}").lower()
    shown = redacted(payload, "payload", rules)
    is_hidden = shown != payload or _headers(letter, rules) != _headers(letter, ())
    note = _("Values shown as '%(hidden)s' are hidden from you: replace them.")
    comment = f"    # {note % {'hidden': HIDDEN}}\n" if is_hidden else ""
    arguments = [
        repr(letter.type),
        _literal(shown),
        f"subscription={letter.subscription!r}",
        *_headers(letter, rules),
    ]
    lines = "".join(f"{indent(each, ' ' * 8)},\n" for each in arguments)
    return (
        f"def test_{name}(eventbus):\n{comment}"
        f"    delivered = eventbus.deliver(\n{lines}    )\n\n"
        "    assert delivered.errors == []\n"
    )


def command_of(letter: DeadLetter) -> str:
    """Return the command that re-drives *letter*."""
    filters = {"message_id": letter.message_id, "subscription": letter.subscription}
    words = [quote(f"{name}={text}") for name, text in filters.items() if text]
    return " ".join(["python manage.py redrive_events", *words])


def _headers(letter: DeadLetter, rules: tuple[str, ...]) -> list[str]:
    # Headers of other services may have types that publish() does not accept.
    own = {
        name: value for name, value in own_headers(letter).items() if isinstance(value, str | int)
    }
    return [f"headers={_literal(redacted(own, 'headers', rules))}"] if own else []


def _literal(value: Any) -> str:
    return pformat(value, width=_WIDTH, sort_dicts=False)


DONE_FIELDS = (
    "created_at", "redriven_at", "redriven_by", "closed_at", "closed_by", "remark", "ignored_until",
    "edited_from", "replaced_by",
)  # fmt: skip


@admin.register(DeadLetter)
class DeadLetterAdmin(MessageAdmin):
    """Dead letters: the changelist shows groups; lists and actions are pages of their own."""

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
    readonly_fields = (*MessageAdmin.readonly_fields, "outcome", "remark", "whole_traceback")

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        letter = context["original"]
        context["timeline"] = timeline_of(request, letter)
        context["pending_plans"] = pending_plans_of(request, letter)
        context["group_url"] = page_url(self, "group", letter.fingerprint)
        context["close_url"] = list_url(self, request)
        context["buttons"] = buttons_of(self, request.user, letter)
        context["copies"] = copies_of(letter, hidden_from(request.user, letter.queue))
        return super().render_change_form(request, context, *args, **kwargs)

    def get_urls(self) -> list[URLPattern]:
        own: dict[str, tuple[str, View]] = {
            "list": ("list/", list_view),
            "group": ("groups/<str:fingerprint>/", group_view),
            "dry_run": ("dry-run/", requires_selection(dry_run_view)),
            "discard": ("discard/", requires_selection(partial(verb_view, DISCARD))),
            "restore": ("restore/", requires_selection(partial(verb_view, RESTORE))),
            "ignore": ("ignore/", requires_selection(partial(verb_view, IGNORE))),
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
        if (
            letter
            and self.has_view_permission(request)
            and not may_see(request.user, [letter.queue])
        ):
            # Without the name of the queue, which the user may not see either.
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
        return render_text(letter.traceback)
