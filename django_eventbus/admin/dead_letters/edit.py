"""Edit a dead letter and re-drive it."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_eventbus.admin.formatting import DiffLine, diff_of_json, render_headers
from django_eventbus.admin.forms import StrictJSONField, format_json
from django_eventbus.admin.pages import database_of, page, page_url, require_view
from django_eventbus.admin.permissions import denial_for, hidden_from
from django_eventbus.dead_letters.redaction import redacted
from django_eventbus.events.message import is_reserved
from django_eventbus.events.text import translated
from django_eventbus.exceptions import BadEdit
from django_eventbus.models import DeadLetter
from django_eventbus.redrive.edited_message import (
    Edit,
    is_readable,
    is_unchanged,
    own_headers,
    payload_or_none,
    problems_of,
    receivers_of,
)
from django_eventbus.redrive.letters import UNCHANGED, edit_and_redrive


class EditForm(forms.Form):
    """The payload, the headers that may be changed, and the reason."""

    payload = StrictJSONField(rows=20, label=gettext_lazy("Payload"))
    headers = StrictJSONField(rows=5, label=gettext_lazy("Headers"), required=False)
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 2, "class": "vLargeTextField"}),
    )
    #: The round that was shown: a dead letter that was re-driven since is in another.
    round = forms.IntegerField(label=gettext_lazy("Round"), widget=forms.HiddenInput)

    def __init__(self, data: Any, letter: DeadLetter) -> None:
        self.letter = letter
        initial = {
            "payload": format_json(payload_or_none(letter)) if is_readable(letter) else "",
            "headers": format_json(own_headers(letter)),
            "round": letter.round,
        }
        super().__init__(data, initial=initial)

    def clean_headers(self) -> dict[str, Any]:
        headers = self.cleaned_data["headers"]
        if not isinstance(headers, dict | None):
            raise forms.ValidationError(_("Enter a JSON object of names and values."))
        return headers or {}

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or {}
        if "payload" in data:
            edit = Edit(payload=data["payload"], headers=data.get("headers", {}))
            for problem in problems_of(self.letter, edit):
                field = "headers" if problem.startswith("header ") else "payload"
                self.add_error(field, translated(problem))
        if not self.errors and is_unchanged(self.letter, self.edit):
            self.add_error(None, str(UNCHANGED))
        return data

    @property
    def edit(self) -> Edit:
        answers = self.cleaned_data
        return Edit(payload=answers["payload"], headers=answers["headers"])


def edit_view(model_admin: ModelAdmin[Any], request: HttpRequest, object_id: str) -> HttpResponse:
    """Show the editor; by POST, the diff; once that is confirmed, send the message."""
    require_view(model_admin, request)
    letter = model_admin.get_object(request, unquote(object_id))
    if letter is None:
        raise Http404(f"There is no {model_admin.opts.verbose_name} {object_id}.")
    if denial := edit_denial(request.user, letter):
        raise PermissionDenied(denial)
    form = EditForm(request.POST if request.method == "POST" else None, letter)
    if request.method != "POST" or not form.is_valid() or "again" in request.POST:
        return _editor(model_admin, request, letter, form)
    if "send" not in request.POST:
        return _review(model_admin, request, letter, form)
    return _send(model_admin, request, letter, form)


def edit_denial(user: Any, letter: DeadLetter) -> str:
    """Say why *user* may not edit *letter*; "" if they may."""
    if denial := denial_for(user, "edit", letter.queue):
        return denial
    if not letter.subscription and not (letter.type and receivers_of(letter)):
        return _("No subscription on its queue would receive the edited message.")
    rules, payload = hidden_from(user, letter.queue), payload_or_none(letter)
    shown = redacted(payload, "payload", rules), redacted(letter.headers, "headers", rules)
    # A hidden value would be overwritten by its placeholder.
    is_whole = shown == (payload, letter.headers)
    return "" if is_whole else denial_for(user, "see_sensitive", letter.queue)


def diff_of(letter: DeadLetter, edit: Edit) -> list[DiffLine]:
    """Return the changes of *edit*, line by line."""
    old = {"payload": payload_or_none(letter), "headers": own_headers(letter)}
    return diff_of_json(old, {"payload": edit.payload, "headers": edit.headers})


def _letter_context(model_admin: ModelAdmin[Any], letter: DeadLetter) -> dict[str, Any]:
    return {
        "letter": letter,
        "receivers": ", ".join(each.name for each in receivers_of(letter)),
        "back": page_url(model_admin, "change", letter.pk),
    }


def _editor(
    model_admin: ModelAdmin[Any], request: HttpRequest, letter: DeadLetter, form: EditForm
) -> HttpResponse:
    locked = {name: value for name, value in letter.headers.items() if is_reserved(name)}
    context = {
        **_letter_context(model_admin, letter),
        "form": form,
        "locked": render_headers(locked),
        "is_readable": is_readable(letter),
        "is_open": letter.state in DeadLetter.REDRIVABLE,
    }
    return page(model_admin, request, "edit", _("Edit and re-drive"), **context)


def _review(
    model_admin: ModelAdmin[Any], request: HttpRequest, letter: DeadLetter, form: EditForm
) -> HttpResponse:
    diff = diff_of(letter, form.edit)
    context = {**_letter_context(model_admin, letter), "form": form, "diff": diff}
    return page(model_admin, request, "edit_review", _("Edit and re-drive: review"), **context)


def _send(
    model_admin: ModelAdmin[Any], request: HttpRequest, letter: DeadLetter, form: EditForm
) -> HttpResponse:
    answers = form.cleaned_data
    try:
        message_id = edit_and_redrive(
            letter.pk,
            form.edit,
            by=request.user.get_username(),
            reason=answers["reason"],
            using=database_of(model_admin, request),
            round=answers["round"],
        )
    except BadEdit as error:
        form.add_error(None, list(map(translated, error.problems)))
        return _editor(model_admin, request, letter, form)
    words = _("Sent as %(id)s. The outcome is not known yet.") % {"id": message_id}
    url, again = page_url(model_admin, "change", letter.pk), _("Reload")
    message = format_html('{} <a href="{}">{}</a>', words, url, again)
    model_admin.message_user(request, message, messages.SUCCESS)
    return redirect(url)
