"""Discard, restore and ignore: verbs on a selection of dead letters, each confirmed on a page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.core.exceptions import PermissionDenied
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_eventbus.admin.dry_run import asked_selection, database_of
from django_eventbus.admin.filters import in_words
from django_eventbus.admin.pages import page, require_view, url_of
from django_eventbus.closing import discard_selected, ignore_selected, restore_selected
from django_eventbus.conf import conf
from django_eventbus.matching import capped_count, freeze, letters_of
from django_eventbus.models import DeadLetter
from django_eventbus.models.dead_letter import DeadLetterQuerySet
from django_eventbus.permissions import why_not
from django_eventbus.selections import Selection

#: Dead letters that one request moves: more would outlast a web server's limit.
MOST_AT_ONCE = 10_000
GROUPS_LIMIT = 50


def _reason(*, is_needed: bool) -> forms.CharField:
    return forms.CharField(
        label=gettext_lazy("Reason"),
        required=is_needed,
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 3, "class": "vLargeTextField"}),
    )


class DiscardForm(forms.Form):
    """Why they are not to be handled any more."""

    reason = _reason(is_needed=True)


class RestoreForm(forms.Form):
    """Why they are to be handled after all."""

    reason = _reason(is_needed=False)


class IgnoreForm(forms.Form):
    """How long they are not to be seen, and why."""

    until = forms.DateTimeField(
        label=gettext_lazy("Until"),
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}),
        help_text=gettext_lazy("Empty: show them again now."),
    )
    reason = _reason(is_needed=False)

    def clean_until(self) -> datetime | None:
        until: datetime | None = self.cleaned_data["until"]
        if until and until <= timezone.now():
            raise forms.ValidationError(_("This time has passed."))
        return until


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionVerb:
    """Something that is done to a selection at once."""

    name: str
    title: str | Promise
    question: str | Promise
    button: str | Promise
    form: type[forms.Form]
    #: The states in which it can be done to a dead letter.
    states: tuple[str, ...]
    do: Callable[[Selection, dict[str, Any], str, str], int]


def _discard(selection: Selection, answers: dict[str, Any], by: str, using: str) -> int:
    return discard_selected(selection, by=by, reason=answers["reason"], using=using)


def _restore(selection: Selection, answers: dict[str, Any], by: str, using: str) -> int:
    return restore_selected(selection, by=by, reason=answers["reason"], using=using)


def _ignore(selection: Selection, answers: dict[str, Any], by: str, using: str) -> int:
    until, reason = answers["until"], answers["reason"]
    return ignore_selected(selection, until, by=by, reason=reason, using=using)


DISCARD = SelectionVerb(
    name="discard",
    title=gettext_lazy("Discard dead letters"),
    question=gettext_lazy("Each is closed: its event is not handled, until it is restored."),
    button=gettext_lazy("Discard"),
    form=DiscardForm,
    states=DeadLetter.REDRIVABLE,
    do=_discard,
)
RESTORE = SelectionVerb(
    name="restore",
    title=gettext_lazy("Restore dead letters"),
    question=gettext_lazy("Each is open again, as it was before it was discarded."),
    button=gettext_lazy("Restore"),
    form=RestoreForm,
    states=(DeadLetter.State.DISCARDED,),
    do=_restore,
)
IGNORE = SelectionVerb(
    name="ignore",
    title=gettext_lazy("Ignore dead letters until a time"),
    question=gettext_lazy("Until then they are not in the list, unless it is asked for them."),
    button=gettext_lazy("Ignore"),
    form=IgnoreForm,
    states=DeadLetter.WAITING,
    do=_ignore,
)


def verb_view(verb: SelectionVerb, screen: ModelAdmin[Any], request: HttpRequest) -> HttpResponse:
    """Show what *verb* would be done to; by POST, do it."""
    require_view(screen, request)
    using = database_of(screen, request)
    selection = freeze(asked_selection(request, using), using)
    chosen = letters_of(selection, using).filter(state__in=verb.states)
    refusal = _refusal(request.user, chosen)
    form = verb.form(request.POST if request.method == "POST" else None)
    count = capped_count(chosen, MOST_AT_ONCE)
    if request.method == "POST":
        if refusal:
            raise PermissionDenied(refusal)
        if form.is_valid() and count <= MOST_AT_ONCE:
            done = verb.do(selection, form.cleaned_data, request.user.get_username(), using)
            return _done(screen, request, selection, done)
    context = {
        "verb": verb,
        "form": form,
        "count": min(count, MOST_AT_ONCE),
        "is_too_much": count > MOST_AT_ONCE,
        # Of more than can be done at once they would be counted in vain, one by one.
        "groups": _groups(chosen) if count <= MOST_AT_ONCE else [],
        "staying": _staying(letters_of(selection, using), verb.states),
        "why_not": refusal,
        "words": in_words(selection),
        "selection": selection.query(),
        "back": url_of(screen, "list", query=selection.query()),
    }
    return page(screen, request, "closing", str(verb.title), **context)


def _refusal(user: Any, letters: DeadLetterQuerySet) -> str:
    reason = why_not(user, "discard")
    if reason or not conf.permission:
        return reason
    queues = letters.order_by().values_list("queue", flat=True).distinct()
    return next(filter(None, (why_not(user, "discard", queue) for queue in queues)), "")


def _groups(letters: DeadLetterQuerySet) -> list[tuple[str, str, str, int]]:
    columns = ("subscription", "error_type", "queue")
    counts = letters.order_by().values_list(*columns).annotate(count=Count("pk"))
    return list(counts.order_by("-count", *columns)[:GROUPS_LIMIT])


def _staying(letters: DeadLetterQuerySet, states: tuple[str, ...]) -> list[tuple[str, int]]:
    names = dict(DeadLetter.State.choices)
    others = letters.exclude(state__in=states).order_by("state")
    counts = others.values_list("state").annotate(Count("pk"))
    return [(str(names.get(state, state)), count) for state, count in counts]


def _done(
    screen: ModelAdmin[Any], request: HttpRequest, selection: Selection, done: int
) -> HttpResponse:
    words = ngettext("%d dead letter was changed.", "%d dead letters were changed.", done) % done
    screen.message_user(request, words, messages.SUCCESS if done else messages.WARNING)
    ids = [key for term in selection.terms if term.name == "id" for key in term.value]
    if len(ids) == 1:
        return redirect(url_of(screen, "change", ids[0]))
    return redirect(url_of(screen, "list", query=selection.query()))
