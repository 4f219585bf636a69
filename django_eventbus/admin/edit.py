"""Edit a dead letter's message and re-drive it: a form, a diff, and then the sending."""

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

from django_eventbus.admin.diffs import DiffLine, diff_of_json
from django_eventbus.admin.dry_run import database_of
from django_eventbus.admin.excerpts import headers_of
from django_eventbus.admin.json_fields import StrictJSONField, written
from django_eventbus.admin.pages import page, require_view, url_of
from django_eventbus.edited_messages import Edit, is_unchanged, own_headers, problems_of
from django_eventbus.edits import UNCHANGED, edit_and_redrive
from django_eventbus.exceptions import BadEdit
from django_eventbus.headers import is_reserved
from django_eventbus.models import DeadLetter
from django_eventbus.permissions import hidden_from, why_not
from django_eventbus.redaction import redacted
from django_eventbus.sentences import translated
from django_eventbus.validation import is_readable, payload_or_none, receivers_of


class EditForm(forms.Form):
    """The payload, the headers that are free, and why."""

    payload = StrictJSONField(rows=20, label=gettext_lazy("Payload"))
    headers = StrictJSONField(rows=5, label=gettext_lazy("Headers"), required=False)
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 2, "class": "vLargeTextField"}),
    )
    #: The round that was shown: what was re-driven since is another.
    round = forms.IntegerField(label=gettext_lazy("Round"), widget=forms.HiddenInput)

    def __init__(self, data: Any, letter: DeadLetter) -> None:
        self.letter = letter
        initial = {
            "payload": written(payload_or_none(letter)) if is_readable(letter) else "",
            "headers": written(own_headers(letter)),
            "round": letter.round,
        }
        super().__init__(data, initial=initial)

    def clean_headers(self) -> dict[str, Any]:
        headers = self.cleaned_data["headers"]
        if not isinstance(headers, dict | None):
            raise forms.ValidationError(_("Write an object of names and values."))
        return headers or {}

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or {}
        if "payload" in data:
            edit = Edit(payload=data["payload"], headers=data.get("headers", {}))
            for problem in problems_of(self.letter, edit):
                field = "headers" if problem.startswith("header ") else "payload"
                self.add_error(field, translated(problem))
        if not self.errors and is_unchanged(self.letter, self.edit):
            self.add_error(None, translated(UNCHANGED))
        return data

    @property
    def edit(self) -> Edit:
        answers = self.cleaned_data
        return Edit(payload=answers["payload"], headers=answers["headers"])


def edit_view(screen: ModelAdmin[Any], request: HttpRequest, object_id: str) -> HttpResponse:
    """Show the editor; by POST, the diff; and once that is confirmed, send it."""
    require_view(screen, request)
    letter = screen.get_object(request, unquote(object_id))
    if letter is None:
        raise Http404(f"There is no {screen.opts.verbose_name} {object_id}.")
    if refusal := edit_refusal(request.user, letter):
        raise PermissionDenied(refusal)
    form = EditForm(request.POST if request.method == "POST" else None, letter)
    if request.method != "POST" or not form.is_valid() or "again" in request.POST:
        return _editor(screen, request, letter, form)
    if "send" not in request.POST:
        return _review(screen, request, letter, form)
    return _sent(screen, request, letter, form)


def edit_refusal(user: Any, letter: DeadLetter) -> str:
    """Say why *user* may not edit *letter*, or return ""."""
    if refusal := why_not(user, "edit", letter.queue):
        return refusal
    if not letter.subscription and not (letter.type and receivers_of(letter)):
        return _("No subscription on its queue would be given what you write.")
    rules, payload = hidden_from(user, letter.queue), payload_or_none(letter)
    shown = redacted(payload, "payload", rules), redacted(letter.headers, "headers", rules)
    # What is hidden would be overwritten by the word that hides it.
    is_whole = shown == (payload, letter.headers)
    return "" if is_whole else why_not(user, "see_sensitive", letter.queue)


def diff_of(letter: DeadLetter, edit: Edit) -> list[DiffLine]:
    """Return what *edit* changes, line by line."""
    old = {"payload": payload_or_none(letter), "headers": own_headers(letter)}
    return diff_of_json(old, {"payload": edit.payload, "headers": edit.headers})


def _about(screen: ModelAdmin[Any], letter: DeadLetter) -> dict[str, Any]:
    return {
        "letter": letter,
        "receivers": ", ".join(each.name for each in receivers_of(letter)),
        "back": url_of(screen, "change", letter.pk),
    }


def _editor(
    screen: ModelAdmin[Any], request: HttpRequest, letter: DeadLetter, form: EditForm
) -> HttpResponse:
    locked = {name: value for name, value in letter.headers.items() if is_reserved(name)}
    context = {
        **_about(screen, letter),
        "form": form,
        "locked": headers_of(locked),
        "is_readable": is_readable(letter),
        "is_open": letter.state in DeadLetter.REDRIVABLE,
    }
    return page(screen, request, "edit", _("Edit and re-drive"), **context)


def _review(
    screen: ModelAdmin[Any], request: HttpRequest, letter: DeadLetter, form: EditForm
) -> HttpResponse:
    diff = diff_of(letter, form.edit)
    context = {**_about(screen, letter), "form": form, "diff": diff}
    return page(screen, request, "edit_review", _("Edit and re-drive: review"), **context)


def _sent(
    screen: ModelAdmin[Any], request: HttpRequest, letter: DeadLetter, form: EditForm
) -> HttpResponse:
    answers = form.cleaned_data
    try:
        message_id = edit_and_redrive(
            letter.pk,
            form.edit,
            by=request.user.get_username(),
            reason=answers["reason"],
            using=database_of(screen, request),
            round=answers["round"],
        )
    except BadEdit as error:
        form.add_error(None, list(map(translated, error.problems)))
        return _editor(screen, request, letter, form)
    words = _("Sent as %(id)s; the outcome is awaited.") % {"id": message_id}
    url, again = url_of(screen, "change", letter.pk), _("Look again")
    said = format_html('{} <a href="{}">{}</a>', words, url, again)
    screen.message_user(request, said, messages.SUCCESS)
    return redirect(url)
