"""Discard, restore and ignore dead letters."""

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

from django_eventbus.admin.dead_letters.dry_run import named_states, requested_selection
from django_eventbus.admin.dead_letters.navigation import back_url, list_query
from django_eventbus.admin.formatting import selection_in_words
from django_eventbus.admin.forms import problem_with_until
from django_eventbus.admin.pages import database_of, page, require_view
from django_eventbus.admin.permissions import denial_for_all
from django_eventbus.admin.plans import plan_name
from django_eventbus.conf import conf
from django_eventbus.dead_letters.query import freeze, matching
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.exceptions import BadPlan
from django_eventbus.models import DeadLetter, Plan
from django_eventbus.models.dead_letters import DeadLetterQuerySet
from django_eventbus.redrive.actions import ACTIONS
from django_eventbus.redrive.discards import (
    ignore_unlocked,
    run_for,
    start_plan,
    unpaced,
)
from django_eventbus.redrive.dry_runs import staying_of, targets_of
from django_eventbus.redrive.plans import progress

#: Dead letters that one request ignores: more would outlast a web server's time limit.
IGNORE_LIMIT = 10_000
#: Seconds that a request works on a plan; after that the workers continue.
TIME_LIMIT = 5.0
TARGETS_LIMIT = 50


def _reason(*, is_required: bool) -> forms.CharField:
    return forms.CharField(
        label=gettext_lazy("Reason"),
        required=is_required,
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 3, "class": "vLargeTextField"}),
    )


class DiscardForm(forms.Form):
    """Why the dead letters are discarded."""

    reason = _reason(is_required=True)


class RestoreForm(forms.Form):
    """Why the dead letters are restored."""

    reason = _reason(is_required=False)


class IgnoreForm(forms.Form):
    """How long the dead letters are ignored, and why."""

    until = forms.DateTimeField(
        label=gettext_lazy("Until"),
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}),
        help_text=gettext_lazy("Leave it empty to show them again now."),
    )
    reason = _reason(is_required=False)

    def clean_until(self) -> datetime | None:
        until: datetime | None = self.cleaned_data["until"]
        if until and (problem := problem_with_until(until)):
            raise forms.ValidationError(problem)
        return until


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionVerb:
    """A change of selected dead letters that a person confirms."""

    name: str
    title: str | Promise
    question: str | Promise
    button: str | Promise
    form: type[forms.Form]
    #: The states in which a dead letter can be changed.
    states: tuple[str, ...]
    #: The message afterwards, for a number.
    success_message: Any
    #: The action of the plan that makes the change; None: it is made at once.
    action: Plan.Action | None = None


DISCARD = SelectionVerb(
    name="discard",
    title=gettext_lazy("Discard dead letters"),
    question=gettext_lazy(
        "Each dead letter is closed and its event is not handled, unless it is restored."
    ),
    button=gettext_lazy("Discard"),
    success_message=ngettext_lazy(
        "%(shown)s dead letter was discarded.", "%(shown)s dead letters were discarded.", "number"
    ),
    form=DiscardForm,
    states=DeadLetter.REDRIVABLE,
    action=Plan.Action.DISCARD,
)
RESTORE = SelectionVerb(
    name="restore",
    title=gettext_lazy("Restore dead letters"),
    question=gettext_lazy("Each dead letter is opened again, as it was before it was discarded."),
    button=gettext_lazy("Restore"),
    success_message=ngettext_lazy(
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
    question=gettext_lazy("Until then the list shows them only if it is filtered for them."),
    button=gettext_lazy("Ignore"),
    success_message=ngettext_lazy(
        "%(shown)s dead letter is ignored.", "%(shown)s dead letters are ignored.", "number"
    ),
    form=IgnoreForm,
    states=DeadLetter.WAITING,
)


def verb_view(
    verb: SelectionVerb, model_admin: ModelAdmin[Any], request: HttpRequest
) -> HttpResponse:
    """Show which dead letters *verb* would change; by POST, change them."""
    require_view(model_admin, request)
    using = database_of(model_admin, request)
    selection = freeze(requested_selection(request, using), using)
    chosen = matching(selection, using).filter(state__in=verb.states)
    denial = _denial(request.user, chosen)
    form = verb.form(request.POST if request.method == "POST" else None)
    targets = targets_of(chosen)
    count = sum(target.count for target in targets)
    is_too_many = verb.action is None and count > IGNORE_LIMIT
    if request.method == "POST":
        if denial:
            raise PermissionDenied(denial)
        if form.is_valid() and count and not is_too_many:
            return _apply(verb, model_admin, request, selection, form.cleaned_data)
    context = {
        "verb": verb,
        "form": form,
        "count": count,
        "is_too_many": is_too_many,
        "targets": targets[:TARGETS_LIMIT],
        "staying": named_states(staying_of(matching(selection, using), verb.states)),
        "denial": denial,
        "words": selection_in_words(selection, request.user, using),
        "selection": selection.query(),
        "back": back_url(model_admin, request, selection),
        "back_query": list_query(request),
    }
    return page(model_admin, request, "confirm", str(verb.title), **context)


def _apply(
    verb: SelectionVerb,
    model_admin: ModelAdmin[Any],
    request: HttpRequest,
    selection: Selection,
    answers: dict[str, Any],
) -> HttpResponse:
    by, using = request.user.get_username(), database_of(model_admin, request)
    if verb.action is None:
        until, reason = answers["until"], answers["reason"]
        done = ignore_unlocked(selection, until, by=by, reason=reason, using=using)
        _report(model_admin, request, verb.success_message if until else _SHOWN_AGAIN, done.changed)
        if done.left:
            words = ngettext(
                "%d dead letter was not changed because its handler is running.",
                "%d dead letters were not changed because their handlers are running.",
                done.left,
            )
            model_admin.message_user(request, words % done.left, messages.WARNING)
        return redirect(back_url(model_admin, request, selection))
    pace = unpaced()
    try:
        plan = start_plan(
            verb.action, selection, by=by, reason=answers["reason"], using=using, pace=pace
        )
    except BadPlan as error:
        model_admin.message_user(request, str(error), messages.WARNING)
        return redirect(back_url(model_admin, request, selection))
    run_for(plan, TIME_LIMIT)
    if plan.ended_at is None:
        model_admin.message_user(request, _("The workers continue the plan."), messages.INFO)
        if request.user.has_perm("eventbus.view_plan"):
            return redirect(reverse("admin:eventbus_plan_change", args=[plan.pk]))
        return redirect(back_url(model_admin, request, selection))
    _report(
        model_admin, request, verb.success_message, progress(plan)[ACTIONS[plan.action].done], plan
    )
    return redirect(back_url(model_admin, request, selection))


def _denial(user: Any, letters: DeadLetterQuerySet) -> str:
    queues: list[str] = []
    if conf.permission:
        queues = list(letters.order_by().values_list("queue", flat=True).distinct())
    return denial_for_all(user, "discard", queues)


def _report(
    model_admin: ModelAdmin[Any],
    request: HttpRequest,
    success_message: Any,
    done: int,
    plan: Plan | None = None,
) -> None:
    words = success_message % {"number": done, "shown": number_format(done, force_grouping=True)}
    if plan and request.user.has_perm("eventbus.view_plan"):
        url, name = reverse("admin:eventbus_plan_change", args=[plan.pk]), plan_name(plan)
        words = format_html('{} <a href="{}">{}</a>', words, url, name)
    model_admin.message_user(request, words, messages.SUCCESS if done else messages.WARNING)
