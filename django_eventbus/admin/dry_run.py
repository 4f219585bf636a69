"""The dry run: what a re-drive would do; and the plan that is made of it."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_eventbus.admin.filters import filters_in, in_words, seen_by, selection_in
from django_eventbus.admin.forecasts import (
    concerns_of,
    duration_of,
    example_of,
    lines_of,
    moving,
    problems_of,
)
from django_eventbus.admin.json_fields import StrictJSONField
from django_eventbus.admin.pages import page, require_view, url_of
from django_eventbus.admin.ways_back import query_of_list, way_back
from django_eventbus.conf import conf
from django_eventbus.dry_runs import Forecast, dry_run
from django_eventbus.edits import dry_run_patch
from django_eventbus.exceptions import BadPlan, BadSelection
from django_eventbus.merge_patches import require_storable
from django_eventbus.models import DeadLetter, Plan
from django_eventbus.permissions import Verb, why_not
from django_eventbus.plans import Pace, make_plan, start
from django_eventbus.selections import Selection
from django_eventbus.setting_values import FASTEST, MOST, SLOWEST


class PaceForm(forms.Form):
    """How the plan goes about it, and why."""

    canary = forms.IntegerField(
        label=gettext_lazy("Canary"),
        min_value=0,
        max_value=MOST,
        help_text=gettext_lazy("So many go first; the rest follows when they have healed."),
    )
    rate = forms.FloatField(label=gettext_lazy("Per second"), min_value=SLOWEST, max_value=FASTEST)
    in_flight = forms.IntegerField(
        label=gettext_lazy("Under way at a time"), min_value=1, max_value=MOST
    )
    fail_percent = forms.IntegerField(
        label=gettext_lazy("Pause above (percent failing)"), min_value=0, max_value=100
    )
    tries = forms.IntegerField(label=gettext_lazy("Attempts for each"), min_value=1, max_value=100)
    limit = forms.IntegerField(
        label=gettext_lazy("At most"),
        required=False,
        min_value=1,
        max_value=MOST,
        help_text=gettext_lazy("Those that were parked first; empty: all of them."),
    )
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        required=False,
        max_length=2000,
        widget=forms.Textarea(attrs={"rows": 3, "class": "vLargeTextField"}),
    )

    def __init__(self, data: QueryDict | None, *, count: int, typed: QueryDict) -> None:
        usual = Pace()
        initial = {name: typed.get(name, getattr(usual, name, None)) for name in self.base_fields}
        super().__init__(data, initial=initial)
        reason = self.fields["reason"]
        reason.help_text = _("Needed for more than %(number)d.") % {"number": conf.reason_above}
        limit = data.get("limit", "") if data else ""
        is_number = limit.isascii() and limit.isdigit() and len(limit) < 20
        moved = min(count, int(limit)) if is_number else count
        reason.required = moved > conf.reason_above


class PatchForm(forms.Form):
    """What is changed in every payload on the way."""

    patch = StrictJSONField(
        rows=4,
        label=gettext_lazy("JSON merge patch"),
        required=False,
        help_text=gettext_lazy('As in RFC 7396: {"currency": "EUR", "old": null}.'),
    )

    def clean_patch(self) -> dict[str, Any] | None:
        patch = self.cleaned_data["patch"]
        if self.data.get("patch", "").strip() and not isinstance(patch, dict):
            raise forms.ValidationError(_('Write an object, such as {"currency": "EUR"}.'))
        try:
            require_storable(patch)
        except BadPlan as error:
            raise forms.ValidationError(str(error)) from None
        return patch if isinstance(patch, dict) else None

    @property
    def answer(self) -> dict[str, Any] | None:
        """The patch, or None: there is none, or it cannot be read."""
        return self.cleaned_data["patch"] if self.is_valid() else None

    @property
    def as_tried(self) -> str:
        """The patch that the dry run is of, as the form hands it back."""
        return "" if self.answer is None else json.dumps(self.answer, sort_keys=True)

    @property
    def is_tried(self) -> bool:
        """Whether the dry run that was seen is the one of this patch."""
        return self.is_valid() and self.as_tried == self.data.get("tried", "")


def dry_run_view(screen: ModelAdmin[Any], request: HttpRequest) -> HttpResponse:
    """Show what a re-drive of the selection would do; by POST, make the plan and start it."""
    require_view(screen, request)
    using = database_of(screen, request)
    change = PatchForm(request.POST)
    forecast = _forecast(asked_selection(request, using), change.answer, using)
    refusal = refusal_of(request.user, forecast, is_edit=change.answer is not None)
    is_start = request.method == "POST" and "try" not in request.POST
    if is_start and refusal:
        raise PermissionDenied(refusal)
    # What was not seen in a dry run is not started: the page is shown anew, with what was typed.
    answers = request.POST if is_start and change.is_tried else None
    form = PaceForm(answers, count=forecast.count, typed=request.POST)
    if answers and form.is_valid():
        plan = _made(request, forecast.selection, form, change.answer, using=using)
        if plan:
            return _followed(screen, request, plan)
    about = _about(screen, request, forecast, change)
    about |= {"is_untried": is_start and change.is_valid() and not change.is_tried}
    return _shown(screen, request, forecast, form, {**about, "why_not": refusal})


def _followed(screen: ModelAdmin[Any], request: HttpRequest, plan: Plan) -> HttpResponse:
    if request.user.has_perm("eventbus.view_plan"):
        return redirect(reverse("admin:eventbus_plan_change", args=[plan.pk]))
    words = _("Plan %(id)d is started; the workers carry it out.") % {"id": plan.pk}
    screen.message_user(request, words, messages.SUCCESS)
    return redirect(url_of(screen, "list", query=plan.filter))


def _forecast(selection: Selection, patch: Any, using: str) -> Forecast:
    if patch is None:
        return dry_run(selection, using=using)
    return dry_run_patch(selection, patch, using=using)


def asked_selection(request: HttpRequest, using: str) -> Selection:
    """Return the selection in the form or in the URL, as far as the user may see it."""
    data = request.GET
    if request.method == "POST":
        data = QueryDict(request.POST.get("selection", ""))
    if not filters_in(data):
        words = _(
            "Say which dead letters are meant, such as state=open; state=all means all of them."
        )
        raise BadSelection(words)
    return seen_by(request.user, selection_in(data), using)


def refusal_of(user: Any, forecast: Forecast, *, is_edit: bool) -> str:
    """Say why *user* may not re-drive all of it, or return ""."""
    queues = sorted({target.queue for target in forecast.targets}) or [""]
    verbs: tuple[Verb, ...] = ("redrive", "edit") if is_edit else ("redrive",)
    reasons = (why_not(user, verb, queue) for verb in verbs for queue in queues)
    return next(filter(None, reasons), "")


def database_of(screen: ModelAdmin[Any], request: HttpRequest) -> str:
    """Return the database that is written to; lists may be read from another."""
    return str(screen.get_queryset(request).select_for_update().db)


def _made(
    request: HttpRequest, selection: Selection, form: PaceForm, patch: Any, *, using: str
) -> Plan | None:
    answers = dict(form.cleaned_data)
    reason, by = answers.pop("reason"), request.user.get_username()
    pace = Pace(**answers)
    try:
        plan = make_plan(selection, by=by, reason=reason, using=using, pace=pace, patch=patch)
    except BadPlan as error:
        form.add_error(None, str(error))
        return None
    return start(plan.pk, by=by, using=using)


def _about(
    screen: ModelAdmin[Any], request: HttpRequest, forecast: Forecast, change: PatchForm
) -> dict[str, Any]:
    using, is_patched = database_of(screen, request), change.answer is not None
    return {
        "change": change,
        "why_not_edit": why_not(request.user, "edit"),
        "moving": moving(forecast, is_patched=is_patched),
        "lines": lines_of(forecast, is_patched=is_patched),
        "is_patched": is_patched,
        "example": example_of(forecast, change.answer, request.user, using),
        "concerns": concerns_of(forecast, is_patched=is_patched),
        "problems": problems_of(screen, forecast, using),
        "words": in_words(forecast.selection, using),
    }


def _shown(
    screen: ModelAdmin[Any],
    request: HttpRequest,
    forecast: Forecast,
    form: PaceForm,
    about: dict[str, Any],
) -> HttpResponse:
    limit, rate = form["limit"].value(), form["rate"].value()
    context = {
        "forecast": forecast,
        "form": form,
        "selection": forecast.selection.query(),
        "staying": named_states(forecast.staying),
        "duration": duration_of(about["moving"], rate, limit),
        "back": way_back(screen, request, forecast.selection),
        "back_query": query_of_list(request),
    }
    return page(screen, request, "dry_run", _("Re-drive: dry run"), **context, **about)


def named_states(counts: dict[str, int]) -> list[tuple[str, int]]:
    """Return *counts* by state with what each state is called."""
    names = dict(DeadLetter.State.choices)
    return [(str(names.get(state, state)), count) for state, count in counts.items()]
