"""Discard, restore and ignore: verbs on a selection of dead letters, each confirmed on a page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.formats import number_format
from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, ngettext_lazy

from django_eventbus.admin.dry_run import asked_selection, database_of, named_states
from django_eventbus.admin.filters import in_words
from django_eventbus.admin.pages import page, require_view
from django_eventbus.admin.plans import name_of
from django_eventbus.admin.until import problem_with_until
from django_eventbus.admin.ways_back import query_of_list, way_back
from django_eventbus.closing import (
    begin_to_carry_out,
    closing_pace,
    ignore_what_is_free,
    start_closing,
)
from django_eventbus.conf import conf
from django_eventbus.dry_runs import staying_of, targets_of
from django_eventbus.exceptions import BadPlan
from django_eventbus.matching import freeze, letters_of
from django_eventbus.models import DeadLetter, Plan
from django_eventbus.models.dead_letter import DeadLetterQuerySet
from django_eventbus.permissions import why_not
from django_eventbus.plan_actions import ACTIONS
from django_eventbus.plans import progress
from django_eventbus.selections import Selection

#: Dead letters that are ignored at once: more would outlast a web server's limit.
MOST_AT_ONCE = 10_000
#: Seconds that a request works on a plan before it leaves the rest to the workers.
PATIENCE = 5.0
TARGETS_LIMIT = 50


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
        if until and (problem := problem_with_until(until)):
            raise forms.ValidationError(problem)
        return until


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionVerb:
    """Something that is done to a selection."""

    name: str
    title: str | Promise
    question: str | Promise
    button: str | Promise
    form: type[forms.Form]
    #: The states in which it can be done to a dead letter.
    states: tuple[str, ...]
    #: What is said afterwards, of how many.
    told: Any
    #: The action of the plan that does it; None: it is done at once.
    action: Plan.Action | None = None


DISCARD = SelectionVerb(
    name="discard",
    title=gettext_lazy("Discard dead letters"),
    question=gettext_lazy("Each is closed: its event is not handled, until it is restored."),
    button=gettext_lazy("Discard"),
    told=ngettext_lazy(
        "%(shown)s dead letter was discarded.", "%(shown)s dead letters were discarded.", "number"
    ),
    form=DiscardForm,
    states=DeadLetter.REDRIVABLE,
    action=Plan.Action.DISCARD,
)
RESTORE = SelectionVerb(
    name="restore",
    title=gettext_lazy("Restore dead letters"),
    question=gettext_lazy("Each is open again, as it was before it was discarded."),
    button=gettext_lazy("Restore"),
    told=ngettext_lazy(
        "%(shown)s dead letter was restored.", "%(shown)s dead letters were restored.", "number"
    ),
    form=RestoreForm,
    states=(DeadLetter.State.DISCARDED,),
    action=Plan.Action.RESTORE,
)
_SHOWN_AGAIN = ngettext_lazy(
    "%(shown)s dead letter is shown again.", "%(shown)s dead letters are shown again.", "number"
)
IGNORE = SelectionVerb(
    name="ignore",
    title=gettext_lazy("Ignore dead letters until a time"),
    question=gettext_lazy("Until then they are not in the list, unless it is asked for them."),
    button=gettext_lazy("Ignore"),
    told=ngettext_lazy(
        "%(shown)s dead letter is ignored.", "%(shown)s dead letters are ignored.", "number"
    ),
    form=IgnoreForm,
    states=DeadLetter.WAITING,
)


def verb_view(verb: SelectionVerb, screen: ModelAdmin[Any], request: HttpRequest) -> HttpResponse:
    """Show what *verb* would be done to; by POST, do it."""
    require_view(screen, request)
    using = database_of(screen, request)
    selection = freeze(asked_selection(request, using), using)
    chosen = letters_of(selection, using).filter(state__in=verb.states)
    refusal = _refusal(request.user, chosen)
    form = verb.form(request.POST if request.method == "POST" else None)
    targets = targets_of(chosen)
    count = sum(target.count for target in targets)
    is_too_much = verb.action is None and count > MOST_AT_ONCE
    if request.method == "POST":
        if refusal:
            raise PermissionDenied(refusal)
        if form.is_valid() and count and not is_too_much:
            return _done(verb, screen, request, selection, form.cleaned_data)
    context = {
        "verb": verb,
        "form": form,
        "count": count,
        "is_too_much": is_too_much,
        "targets": targets[:TARGETS_LIMIT],
        "staying": named_states(staying_of(letters_of(selection, using), verb.states)),
        "why_not": refusal,
        "words": in_words(selection, using),
        "selection": selection.query(),
        "back": way_back(screen, request, selection),
        "back_query": query_of_list(request),
    }
    return page(screen, request, "closing", str(verb.title), **context)


def _done(
    verb: SelectionVerb,
    screen: ModelAdmin[Any],
    request: HttpRequest,
    selection: Selection,
    answers: dict[str, Any],
) -> HttpResponse:
    by, using = request.user.get_username(), database_of(screen, request)
    if verb.action is None:
        until, reason = answers["until"], answers["reason"]
        done = ignore_what_is_free(selection, until, by=by, reason=reason, using=using)
        _tell(screen, request, verb.told if until else _SHOWN_AGAIN, done.changed)
        _tell_left(screen, request, done.left)
        return redirect(way_back(screen, request, selection))
    pace = closing_pace()
    try:
        plan = start_closing(
            verb.action, selection, by=by, reason=answers["reason"], using=using, pace=pace
        )
    except BadPlan as error:
        screen.message_user(request, str(error), messages.WARNING)
        return redirect(way_back(screen, request, selection))
    begin_to_carry_out(plan, PATIENCE)
    if plan.ended_at is None:
        screen.message_user(request, _("The workers carry the rest of it out."), messages.INFO)
        if request.user.has_perm("eventbus.view_plan"):
            return redirect(reverse("admin:eventbus_plan_change", args=[plan.pk]))
        return redirect(way_back(screen, request, selection))
    _tell(screen, request, verb.told, progress(plan)[ACTIONS[plan.action].done], plan)
    return redirect(way_back(screen, request, selection))


def _refusal(user: Any, letters: DeadLetterQuerySet) -> str:
    reason = why_not(user, "discard")
    if reason or not conf.permission:
        return reason
    queues = letters.order_by().values_list("queue", flat=True).distinct()
    return next(filter(None, (why_not(user, "discard", queue) for queue in queues)), "")


def _tell(
    screen: ModelAdmin[Any], request: HttpRequest, told: Any, done: int, plan: Plan | None = None
) -> None:
    words = told % {"number": done, "shown": number_format(done, force_grouping=True)}
    if plan and request.user.has_perm("eventbus.view_plan"):
        url, name = reverse("admin:eventbus_plan_change", args=[plan.pk]), name_of(plan)
        words = format_html('{} <a href="{}">{}</a>', words, url, name)
    screen.message_user(request, words, messages.SUCCESS if done else messages.WARNING)


def _tell_left(screen: ModelAdmin[Any], request: HttpRequest, left: int) -> None:
    words = ngettext(
        "%d dead letter was left as it is: its handler is at work.",
        "%d dead letters were left as they are: their handlers are at work.",
        left,
    )
    if left:
        screen.message_user(request, words % left, messages.WARNING)
