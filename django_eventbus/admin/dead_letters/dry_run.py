"""The dry run before a re-drive."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_eventbus.admin.dead_letters.filters import filters_in, limited_to, selection_in
from django_eventbus.admin.dead_letters.navigation import back_url, list_query
from django_eventbus.admin.formatting import BODY_LIMIT, DiffLine, diff_of_json, selection_in_words
from django_eventbus.admin.forms import StrictJSONField
from django_eventbus.admin.pages import database_of, page, page_url, require_view
from django_eventbus.admin.permissions import Verb, denial_for, hidden_from
from django_eventbus.admin.plans import letters_query
from django_eventbus.conf.parsers import FASTEST, NUMBER_LIMIT, SLOWEST
from django_eventbus.dead_letters.redaction import redacted
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.durations import rough
from django_eventbus.events.text import translated
from django_eventbus.exceptions import BadPlan, BadSelection
from django_eventbus.models import DeadLetter, Plan
from django_eventbus.redrive import plans
from django_eventbus.redrive.dry_runs import Forecast, Target, dry_run, dry_run_patch
from django_eventbus.redrive.edited_message import merged, payload_or_none, require_storable
from django_eventbus.redrive.plans import Pace, make_plan, start

#: Rows of the table of targets.
TARGETS_LIMIT = 50


def count_to_send(forecast: Forecast, *, is_patched: bool) -> int:
    """Return how many would be sent: with a patch, without those that it makes invalid."""
    return forecast.count - (forecast.scaled(forecast.invalid) if is_patched else 0)


def concerns_of(forecast: Forecast, *, is_patched: bool) -> list[tuple[str, int, bool]]:
    """Return (text, count, whether it is an estimate) of each problem."""
    invalid = _("payload invalid: they would be re-driven, and parked again")
    if is_patched:
        invalid = _("payload invalid with this patch: the plan would skip them")
    forgotten = _(
        "older than the records of the inbox: they would run, and may have been handled already"
    )
    sampled = (
        (_("already handled: the inbox would skip them"), forecast.already_handled),
        (forgotten, forecast.forgotten),
        (invalid, forecast.invalid),
        (_("in another plan under way: the second of the two plans skips them"), forecast.planned),
    )
    exact = (
        (
            _("no subscription: this project does not handle them, and they would be parked again"),
            forecast.without_subscription,
        ),
        (_("no queue: it does not belong to this project"), forecast.without_queue),
    )
    scaled = [(words, forecast.scaled(count), forecast.is_sampled) for words, count in sampled]
    return [*((words, count, False) for words, count in exact), *scaled]


def targets_with_concerns(forecast: Forecast, *, is_patched: bool) -> list[tuple[Target, str]]:
    """Return the targets, each with its problems as text; "" if there is none."""
    targets = forecast.targets[:TARGETS_LIMIT]
    return [(each, ", ".join(_concerns_of_target(each, forecast, is_patched))) for each in targets]


def _concerns_of_target(target: Target, forecast: Forecast, is_patched: bool) -> Iterator[str]:
    if not target.is_queue_here:
        yield _("not a queue of this project")
    elif not target.has_subscription:
        yield _("no subscription")
    if invalid := forecast.invalid_of(target):
        words = _("skipped with this patch: %(count)s")
        if not is_patched:
            words = _("payload invalid: %(count)s")
        count = min(forecast.scaled(invalid), target.count)
        shown = number_format(count, force_grouping=True)
        yield words % {"count": f"≈ {shown}" if forecast.is_sampled else shown}


def problems_of(
    model_admin: ModelAdmin[Any], forecast: Forecast, using: str
) -> list[tuple[str, str, str]]:
    """Return (URL, name, problem of the payload) of some dead letters."""
    keys = [key for key, _problems in forecast.problems]
    letters = DeadLetter.objects.using(using).filter(pk__in=keys)
    types = dict(letters.values_list("pk", "type"))
    return [
        (
            page_url(model_admin, "change", key),
            f"{types.get(key, '')} ({key})".strip(),
            "; ".join(map(translated, problems)),
        )
        for key, problems in forecast.problems
    ]


def example_of(forecast: Forecast, patch: Any, user: Any, using: str) -> list[DiffLine] | None:
    """Return the diff of one payload with *patch*, as far as *user* may see it; None if there is none."""
    if patch is None or forecast.sample is None:
        return None
    letter = DeadLetter.objects.using(using).filter(pk=forecast.sample).first()
    if letter is None or len(letter.body) > BODY_LIMIT:
        return None
    payload, rules = payload_or_none(letter), hidden_from(user, letter.queue)
    sides = (redacted(each, "payload", rules) for each in (payload, merged(payload, patch)))
    return diff_of_json(*sides)


def duration_of(count: int, rate: object, limit: object) -> str:
    """Return how long *count* take at the rate that was typed; "" if that is unknown."""
    per_second, highest = _number(rate), _number(limit)
    seconds = min(count, highest or count) / per_second if per_second else 0.0
    return rough(max(seconds, 1)) if seconds and math.isfinite(seconds) else ""


def _number(typed: object) -> float:
    try:
        number = float(str(typed))
    except ValueError:
        return 0.0
    return number if number > 0 and math.isfinite(number) else 0.0


class PaceForm(forms.Form):
    """The pace of the plan, and the reason."""

    canary = forms.IntegerField(
        label=gettext_lazy("Canary"),
        min_value=0,
        max_value=NUMBER_LIMIT,
        help_text=gettext_lazy(
            "The number that is sent first. The others follow when these have healed."
        ),
    )
    rate = forms.FloatField(label=gettext_lazy("Per second"), min_value=SLOWEST, max_value=FASTEST)
    in_flight = forms.IntegerField(
        label=gettext_lazy("Under way at a time"), min_value=1, max_value=NUMBER_LIMIT
    )
    fail_percent = forms.IntegerField(
        label=gettext_lazy("Pause above (percent failing)"), min_value=0, max_value=100
    )
    tries = forms.IntegerField(label=gettext_lazy("Attempts for each"), min_value=1, max_value=100)
    limit = forms.IntegerField(
        label=gettext_lazy("At most"),
        required=False,
        min_value=1,
        max_value=NUMBER_LIMIT,
        help_text=gettext_lazy("Those that were parked first. Leave it empty for all of them."),
    )
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        required=False,
        max_length=2000,
        widget=forms.Textarea(attrs={"rows": 3, "class": "vLargeTextField"}),
    )

    def __init__(self, data: QueryDict | None, *, count: int, typed: QueryDict) -> None:
        default = Pace()
        initial = {name: typed.get(name, getattr(default, name, None)) for name in self.base_fields}
        super().__init__(data, initial=initial)
        reason = self.fields["reason"]
        reason.help_text = _("Required for more than %(number)d.") % {"number": plans.REASON_ABOVE}
        limit = data.get("limit", "") if data else ""
        is_number = limit.isascii() and limit.isdigit() and len(limit) < 20
        moved = min(count, int(limit)) if is_number else count
        reason.required = moved > plans.REASON_ABOVE


class PatchForm(forms.Form):
    """A change of every payload."""

    patch = StrictJSONField(
        rows=4,
        label=gettext_lazy("JSON merge patch"),
        required=False,
        help_text=gettext_lazy('As in RFC 7396: {"currency": "EUR", "old": null}.'),
    )

    def clean_patch(self) -> dict[str, Any] | None:
        patch = self.cleaned_data["patch"]
        if self.data.get("patch", "").strip() and not isinstance(patch, dict):
            raise forms.ValidationError(_('Enter a JSON object, such as {"currency": "EUR"}.'))
        try:
            require_storable(patch)
        except BadPlan as error:
            raise forms.ValidationError(str(error)) from None
        return patch if isinstance(patch, dict) else None

    @property
    def answer(self) -> dict[str, Any] | None:
        """The patch; None if there is none, or it cannot be read."""
        return self.cleaned_data["patch"] if self.is_valid() else None

    @property
    def as_tried(self) -> str:
        """The patch of the dry run, as the form sends it back."""
        return "" if self.answer is None else json.dumps(self.answer, sort_keys=True)

    @property
    def is_tried(self) -> bool:
        """Whether the dry run that was shown is the one of this patch."""
        return self.is_valid() and self.as_tried == self.data.get("tried", "")


def dry_run_view(model_admin: ModelAdmin[Any], request: HttpRequest) -> HttpResponse:
    """Show what a re-drive of the selection would do; by POST, make the plan and start it."""
    require_view(model_admin, request)
    using = database_of(model_admin, request)
    change = PatchForm(request.POST)
    selection = requested_selection(request, using)
    if change.answer is None:
        forecast = dry_run(selection, using=using)
    else:
        forecast = dry_run_patch(selection, change.answer, using=using)
    denial = plan_denial(request.user, forecast, is_edit=change.answer is not None)
    is_start = request.method == "POST" and "try" not in request.POST
    if is_start and denial:
        raise PermissionDenied(denial)
    # A plan starts only after its dry run was shown; otherwise the page is shown again, as filled in.
    answers = request.POST if is_start and change.is_tried else None
    form = PaceForm(answers, count=forecast.count, typed=request.POST)
    if answers and form.is_valid():
        plan = _start_plan(request, forecast.selection, form, change.answer, using=using)
        if plan:
            _warn_of_difference(model_admin, request, plan, form.cleaned_data["limit"])
            return _plan_started(model_admin, request, plan)
    context = {
        "is_patch_untried": is_start and change.is_valid() and not change.is_tried,
        "denial": denial,
        "form": form,
        "change": change,
        **_forecast_context(model_admin, request, forecast, change),
    }
    context["duration"] = duration_of(
        context["moving"], form["rate"].value(), form["limit"].value()
    )
    return page(model_admin, request, "dry_run", _("Re-drive: dry run"), **context)


def _warn_of_difference(
    model_admin: ModelAdmin[Any], request: HttpRequest, plan: Plan, limit: int | None
) -> None:
    """Say if the plan has not as many dead letters as the dry run counted."""
    counted = request.POST.get("counted", "")
    if not counted.isascii() or not counted.isdigit() or len(counted) > 18:
        return
    expected = min(int(counted), limit or int(counted))
    if plan.total != expected:
        words = _(
            "The dry run counted %(counted)s, and the plan has %(total)s dead letters: "
            "some of them were changed in between."
        )
        numbers = {"counted": expected, "total": plan.total}
        shown = {name: number_format(each, force_grouping=True) for name, each in numbers.items()}
        model_admin.message_user(request, words % shown, messages.WARNING)


def _plan_started(model_admin: ModelAdmin[Any], request: HttpRequest, plan: Plan) -> HttpResponse:
    if request.user.has_perm("eventbus.view_plan"):
        return redirect(reverse("admin:eventbus_plan_change", args=[plan.pk]))
    words = _("Plan %(id)d was started. The workers run it.") % {"id": plan.pk}
    model_admin.message_user(request, words, messages.SUCCESS)
    return redirect(page_url(model_admin, "list", query=letters_query(plan)))


def requested_selection(request: HttpRequest, using: str) -> Selection:
    """Return the selection of the form or the URL, as far as the user may see it."""
    data = request.GET
    if request.method == "POST":
        data = QueryDict(request.POST.get("selection", ""))
    if not filters_in(data):
        words = _(
            "Select dead letters with a filter, such as state=open, or all of them with state=all."
        )
        raise BadSelection(words)
    return limited_to(request.user, selection_in(data), using)


def plan_denial(user: Any, forecast: Forecast, *, is_edit: bool) -> str:
    """Say why *user* may not re-drive all of it; "" if they may."""
    queues = sorted({target.queue for target in forecast.targets}) or [""]
    verbs: tuple[Verb, ...] = ("redrive", "edit") if is_edit else ("redrive",)
    denials = (denial_for(user, verb, queue) for verb in verbs for queue in queues)
    return next(filter(None, denials), "")


def _start_plan(
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


def _forecast_context(
    model_admin: ModelAdmin[Any], request: HttpRequest, forecast: Forecast, change: PatchForm
) -> dict[str, Any]:
    using, is_patched = database_of(model_admin, request), change.answer is not None
    return {
        "forecast": forecast,
        "selection": forecast.selection.query(),
        "words": selection_in_words(forecast.selection, request.user, using),
        "staying": named_states(forecast.staying),
        "edit_denial": denial_for(request.user, "edit"),
        "moving": count_to_send(forecast, is_patched=is_patched),
        "targets": targets_with_concerns(forecast, is_patched=is_patched),
        "is_patched": is_patched,
        "example": example_of(forecast, change.answer, request.user, using),
        "concerns": concerns_of(forecast, is_patched=is_patched),
        "problems": problems_of(model_admin, forecast, using),
        "back": back_url(model_admin, request, forecast.selection),
        "back_query": list_query(request),
    }


def named_states(counts: dict[str, int]) -> list[tuple[str, int]]:
    """Return *counts* by state, each with the label of the state."""
    names = dict(DeadLetter.State.choices)
    return [(str(names.get(state, state)), count) for state, count in counts.items()]
