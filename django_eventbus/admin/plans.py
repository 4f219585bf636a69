"""The pages of plans: list, progress, start, pause, resume, cancel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db import DEFAULT_DB_ALIAS
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, JsonResponse
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.urls import URLPattern, reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_eventbus.admin.formatting import result_in_words, selection_in_words, short, visible
from django_eventbus.admin.forms import format_json
from django_eventbus.admin.model_admin import ReadOnlyAdmin, ago
from django_eventbus.admin.pages import (
    Button,
    View,
    database_of,
    page,
    page_url,
    page_urls,
    require_view,
)
from django_eventbus.admin.permissions import Verb, denial_for_all, hidden_on, may_see
from django_eventbus.conf import conf
from django_eventbus.dead_letters.redaction import redacted
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.exceptions import BadPlan
from django_eventbus.models import DeadLetter, Plan, PlannedLetter, Worker
from django_eventbus.redrive import plans
from django_eventbus.redrive.plans import progress

#: The width of the progress bar, in the units of its SVG.
BAR_WIDTH = 1000
#: Outcomes on one page.
OUTCOMES_LIMIT = 50
#: The order of states in the bar.
_ORDER = (
    "healed", "discarded", "restored", "failed", "unknown", "skipped", "sent", "pending",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The segment of one state in the bar."""

    state: str
    name: str
    count: int
    x: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The counts of a plan, and the bar that shows them."""

    parts: list[Part]
    total: int
    settled: int
    words: str

    @property
    def percent(self) -> int:
        return self.settled * 100 // self.total if self.total else 100


def letters_query(plan: Plan) -> str:
    """Return the query of the list of the dead letters of *plan*."""
    is_whole = not Selection.from_query(plan.filter).redacted(conf.redact).is_redacted
    return plan.filter if is_whole else f"plan={plan.pk}"


def progress_of(plan: Plan, user: Any) -> Progress:
    """Count the dead letters of *plan* by state."""
    counts = progress(plan)
    return Progress(
        parts=_parts(counts),
        total=sum(counts.values()),
        settled=sum(
            number for state, number in counts.items() if state not in PlannedLetter.UNSETTLED
        ),
        words=selection_in_words(
            Selection.from_query(plan.filter).redacted(conf.redact),
            user,
            plan._state.db or DEFAULT_DB_ALIAS,
        ),
    )


def _parts(counts: dict[str, int]) -> list[Part]:
    names = dict(PlannedLetter.State.choices)
    total, x, parts = max(1, sum(counts.values())), 0.0, []
    for state in filter(counts.__contains__, _ORDER):
        width = round(counts[state] / total * BAR_WIDTH, 2)
        part = Part(state=state, name=str(names[state]), count=counts[state], x=x, width=width)
        parts.append(part)
        x = round(x + width, 2)
    return parts


def state_in_words(state: str, note: str) -> tuple[str, str]:
    """Return the label of a plan's *state*, and its *note*; "Paused by ada." is both."""
    name = capfirst(str(Plan.State(state).label))
    if note.startswith(name):
        return note, ""
    return (f"{name}:" if note else name), note


def latest_outcomes(plan: Plan) -> list[dict[str, Any]]:
    """Return the latest outcomes of all states."""
    rows = PlannedLetter.objects.using(plan._state.db).filter(plan=plan)
    settled = rows.filter(settled_at__isnull=False).order_by("-settled_at")
    return _outcome_rows(plan, list(settled[:OUTCOMES_LIMIT]))


def outcomes_of(plan: Plan, state: str, after: int) -> tuple[list[dict[str, Any]], int | None]:
    """Return the outcomes of one *state* after a row's id, and that id for the next page, if any."""
    rows = PlannedLetter.objects.using(plan._state.db).filter(plan=plan, state=state)
    found = list(rows.filter(pk__gt=after).order_by("pk")[: OUTCOMES_LIMIT + 1])
    shown = found[:OUTCOMES_LIMIT]
    return _outcome_rows(plan, shown), shown[-1].pk if len(found) > OUTCOMES_LIMIT else None


def _outcome_rows(plan: Plan, rows: list[PlannedLetter]) -> list[dict[str, Any]]:
    found = DeadLetter.objects.using(plan._state.db).filter(
        pk__in=[row.dead_letter_id for row in rows]
    )
    letters = found.only("id", "type", "message_id", "subscription", "key").in_bulk()
    errors = _errors(plan, rows)
    return [
        {
            "letter": letters.get(row.dead_letter_id),
            "letter_id": row.dead_letter_id,
            "state": row.state,
            "name": row.get_state_display(),
            "why": short(f"{row.reason_text}: {errors[row.pk]}")
            if errors.get(row.pk)
            else visible(row.reason_text),
            "at": row.settled_at or row.sent_at,
        }
        for row in rows
    ]


def _errors(plan: Plan, rows: list[PlannedLetter]) -> dict[int, str]:
    """Return the error messages of failed *rows*, as far as they are still known."""
    # Not stored with the outcome: rows with equal values are written by one statement.
    failed = [row for row in rows if row.state == PlannedLetter.State.FAILED]
    letters = DeadLetter.objects.using(plan._state.db).only("id", "message_id", "error", "round")
    same = letters.in_bulk([row.dead_letter_id for row in failed if not row.sent_as])
    edited = letters.filter(message_id__in=[row.sent_as for row in failed if row.sent_as])
    by_id = {letter.message_id: letter for letter in edited}
    words = {}
    for row in failed:
        letter = by_id.get(row.sent_as) if row.sent_as else same.get(row.dead_letter_id)
        if letter and (row.sent_as or letter.round == row.round + 1):
            words[row.pk] = letter.error
    return words


State = Plan.State
Outcome = PlannedLetter.State

#: The label of each verb's button.
LABELS = {
    "start": gettext_lazy("Start"),
    "pause": gettext_lazy("Pause"),
    "resume": gettext_lazy("Resume"),
    "cancel": gettext_lazy("Cancel"),
}


@admin.register(Plan)
class PlanAdmin(ReadOnlyAdmin):
    """Plans, the newest first; the page of a plan follows its progress."""

    ordering = ("-id",)
    list_display = (
        "name", "action", "state", "total", "outcomes", "created_by", "created", "why", "remark",
    )  # fmt: skip
    list_filter = ("action", "state")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        plans = super().get_queryset(request)
        if not conf.permission:
            return plans
        touched = plans.order_by().values_list("queues", flat=True).distinct()
        return plans.filter(queues__in=[each for each in touched if may_see(request.user, each)])

    def get_urls(self) -> list[URLPattern]:
        own: dict[str, tuple[str, View]] = {
            "progress": ("<int:plan_id>/progress/", progress_view),
            "verb": ("<int:plan_id>/<str:verb>/now/", verb_view),
        }
        return [*page_urls(self, own), *super().get_urls()]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        require_view(self, request)
        plan = plan_or_404(self, request, unquote(object_id))
        rules = hidden_on(request.user, plan.queues)
        patch = redacted(plan.patch, "payload", rules)
        context = {
            "plan": plan,
            "patch": format_json(patch) if patch is not None else "",
            "letters_query": letters_query(plan),
            **page_context(self, request, plan),
        }
        return page(self, request, "plan", plan_title(plan), **context)

    @admin.display(description=gettext_lazy("plan"), ordering="id")
    def name(self, plan: Plan) -> str:
        return plan_name(plan)

    @admin.display(description=gettext_lazy("outcomes"))
    def outcomes(self, plan: Plan) -> str:
        return "-" if plan.state == State.PLANNED else result_in_words(plans.progress(plan))

    @admin.display(description=gettext_lazy("created"), ordering="created_at")
    def created(self, plan: Plan) -> str:
        return ago(plan.created_at)

    @admin.display(description=gettext_lazy("reason"))
    def why(self, plan: Plan) -> str:
        return plan.reason[:100]

    @admin.display(description=gettext_lazy("note"))
    def remark(self, plan: Plan) -> str:
        return plan.note_text


def plan_name(plan: Plan) -> str:
    """Return the text of a link to *plan*."""
    return _("Plan %(id)d") % {"id": plan.pk}


def plan_title(plan: Plan) -> str:
    """Return the title of the page of *plan*."""
    return _("Plan %(id)d: %(action)s") % {"id": plan.pk, "action": plan.get_action_display()}


def plan_or_404(model_admin: PlanAdmin, request: HttpRequest, plan_id: Any) -> Plan:
    """Return the plan, or raise Http404."""
    plan: Plan | None = model_admin.get_object(request, str(plan_id))
    if plan is None:
        raise Http404(_("This plan does not exist."))
    return plan


def progress_view(model_admin: PlanAdmin, request: HttpRequest, plan_id: int) -> HttpResponse:
    """Return the parts of the plan's page that change, as JSON."""
    require_view(model_admin, request)
    plan = plan_or_404(model_admin, request, plan_id)
    context = page_context(model_admin, request, plan)
    context |= {"plan": plan, "opts": model_admin.opts}
    parts = {
        name: render_to_string(f"admin/eventbus/plan_{name}.html", context, request)
        for name in ("progress", "verbs", "outcomes")
    }
    is_over = plan.ended_at is not None
    return JsonResponse({"is_over": is_over, "texts": context["texts"], "parts": parts})


def page_context(model_admin: PlanAdmin, request: HttpRequest, plan: Plan) -> dict[str, Any]:
    """Return the context of the page of *plan*."""
    progress, (state, note) = (
        progress_of(plan, request.user),
        state_in_words(plan.state, plan.note_text),
    )
    return {
        "texts": {"state": state, "note": note},
        "progress": progress,
        "verbs": _verbs(model_admin, request, plan),
        "again": _next_plans(request.user, plan, progress),
        "has_no_relay": plan.is_under_way and not Worker.objects.relays(timezone.now()).exists(),
        "progress_url": page_url(model_admin, "progress", plan.pk, query=request.GET.urlencode()),
        **_outcomes(request, plan, progress),
    }


def _next_plans(user: Any, plan: Plan, progress: Progress) -> list[Button]:
    """Return buttons for another plan over the outcomes of this one."""
    if plan.is_started:
        return []
    present = {part.state for part in progress.parts if part.count}
    offers = [(_("Re-drive those that failed again…"), str(Outcome.FAILED))]
    if plan.is_redrive and plan.state == State.CANCELLED:
        offers.append((_("Re-drive those that were not sent…"), str(Outcome.SKIPPED)))
    return [_next_plan(user, plan, *offer) for offer in offers if offer[1] in present]


def _next_plan(user: Any, plan: Plan, label: str, outcome: str) -> Button:
    states = [("state", str(state)) for state in DeadLetter.REDRIVABLE]
    query = urlencode([("plan", f"{plan.pk}:{outcome}"), *states])
    url = f"{reverse('admin:eventbus_deadletter_dry_run')}?{query}"
    return Button(label=label, url=url, denial=_denial(user, plan))


def _outcomes(request: HttpRequest, plan: Plan, progress: Progress) -> dict[str, Any]:
    wanted = request.GET.get("outcome", "")
    count = next((part.count for part in progress.parts if part.state == wanted), None)
    if count is None:
        return {"outcome": "", "outcomes": latest_outcomes(plan), "outcome_count": progress.settled}
    after = request.GET.get("after", "")
    outcomes, following = outcomes_of(plan, wanted, _row_id(after))
    return {
        "outcome": wanted,
        "outcomes": outcomes,
        "outcome_count": count,
        "is_first": not after,
        "following": following,
    }


def _row_id(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _verbs(model_admin: PlanAdmin, request: HttpRequest, plan: Plan) -> list[Any]:
    denial = _denial(request.user, plan)
    return [
        {
            "label": LABELS[verb],
            "url": page_url(model_admin, "verb", plan.pk, verb),
            "denial": denial,
        }
        for verb in Plan.VERBS
        if plan.allows(verb)
    ]


def verb_view(
    model_admin: PlanAdmin, request: HttpRequest, plan_id: int, verb: str
) -> HttpResponse:
    """Start, pause, resume or cancel a plan."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    require_view(model_admin, request)
    if verb not in Plan.VERBS:
        raise Http404(_("This action does not exist."))
    if denial := _denial(request.user, plan_or_404(model_admin, request, plan_id)):
        raise PermissionDenied(denial)
    try:
        plans.change(
            plan_id, verb, by=request.user.get_username(), using=database_of(model_admin, request)
        )
    except BadPlan as error:
        model_admin.message_user(request, str(error), messages.WARNING)
    return redirect(page_url(model_admin, "change", plan_id))


def _denial(user: Any, plan: Plan) -> str:
    """Say why *user* may not change *plan*; "" if they may."""
    verb: Verb = "redrive" if plan.is_redrive else "discard"
    return denial_for_all(user, verb, plan.queues)
