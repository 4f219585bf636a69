"""Plans: what is under way, how far it is, and the verbs that steer it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, JsonResponse
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.urls import URLPattern, reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_eventbus import plans
from django_eventbus.admin.audit_outcomes import result_in_words
from django_eventbus.admin.json_fields import written
from django_eventbus.admin.pages import Button, View, page, page_urls, require_view, url_of
from django_eventbus.admin.plan_progress import (
    Progress,
    latest_outcomes,
    outcomes_of,
    progress_of,
    state_in_words,
)
from django_eventbus.admin.read_only import ReadOnlyAdmin, ago
from django_eventbus.conf import conf
from django_eventbus.exceptions import BadPlan
from django_eventbus.models import DeadLetter, Plan, PlannedLetter, Worker
from django_eventbus.permissions import Verb, sees, why_not_everywhere
from django_eventbus.sentences import translated

State = Plan.State
Outcome = PlannedLetter.State
#: Each verb with its label and the states in which it can be done.
VERBS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "start": (gettext_lazy("Start"), (State.PLANNED,)),
    "pause": (gettext_lazy("Pause"), Plan.STARTED),
    "resume": (gettext_lazy("Resume"), (State.PAUSED,)),
    "cancel": (gettext_lazy("Cancel"), (State.PLANNED, *Plan.STARTED, State.PAUSED)),
}


@admin.register(Plan)
class PlanAdmin(ReadOnlyAdmin):
    """Plans, the newest first; each on a page that follows it."""

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
        return plans.filter(queues__in=[each for each in touched if sees(request.user, each)])

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
        plan = found(self, request, unquote(object_id))
        patch = written(plan.patch) if plan.patch is not None else ""
        context = {"plan": plan, "patch": patch, **parts_of(self, request, plan)}
        return page(self, request, "plan", title_of(plan), **context)

    @admin.display(description=gettext_lazy("plan"), ordering="id")
    def name(self, plan: Plan) -> str:
        return name_of(plan)

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
        return translated(plan.note)


def name_of(plan: Plan) -> str:
    """Return what a link to *plan* is called."""
    return _("Plan %(id)d") % {"id": plan.pk}


def title_of(plan: Plan) -> str:
    """Return what the page of *plan* is called."""
    return _("Plan %(id)d: %(action)s") % {"id": plan.pk, "action": plan.get_action_display()}


def found(screen: PlanAdmin, request: HttpRequest, plan_id: Any) -> Plan:
    """Return the plan, or raise Http404."""
    plan: Plan | None = screen.get_object(request, str(plan_id))
    if plan is None:
        raise Http404(_("There is no such plan."))
    return plan


def progress_view(screen: PlanAdmin, request: HttpRequest, plan_id: int) -> HttpResponse:
    """Tell how far the plan is, as the parts of its page that change."""
    require_view(screen, request)
    plan = found(screen, request, plan_id)
    context = parts_of(screen, request, plan)
    context |= {"plan": plan, "opts": screen.opts}
    parts = {
        name: render_to_string(f"admin/eventbus/plan_{name}.html", context, request)
        for name in ("progress", "verbs", "outcomes")
    }
    is_over = plan.ended_at is not None
    return JsonResponse({"is_over": is_over, "texts": context["texts"], "parts": parts})


def parts_of(screen: PlanAdmin, request: HttpRequest, plan: Plan) -> dict[str, Any]:
    """Return what the page of *plan* shows."""
    progress: Progress = progress_of(plan)
    return {
        "texts": texts_of(plan),
        "progress": progress,
        "verbs": _verbs(screen, request, plan),
        "again": _again(request.user, plan, progress),
        "is_forsaken": plan.is_under_way and not Worker.objects.relays(timezone.now()).exists(),
        "progress_url": url_of(screen, "progress", plan.pk, query=request.GET.urlencode()),
        **_outcomes(request, plan, progress),
    }


def texts_of(plan: Plan) -> dict[str, str]:
    """Return the state of *plan* and why it is so, as a screen reader says them."""
    return dict(zip(("state", "note"), state_in_words(plan.state, plan.note), strict=True))


def _again(user: Any, plan: Plan, progress: Progress) -> list[Button]:
    """Return the ways to another plan, over what became of this one."""
    if plan.is_started:
        return []
    there = {part.state for part in progress.parts if part.count}
    offers = [(_("Re-drive what failed again…"), str(Outcome.FAILED))]
    if plan.is_redrive and plan.state == State.CANCELLED:
        offers.append((_("Re-drive what was not sent…"), str(Outcome.SKIPPED)))
    return [_next_plan(user, plan, *offer) for offer in offers if offer[1] in there]


def _next_plan(user: Any, plan: Plan, label: str, outcome: str) -> Button:
    states = [("state", str(state)) for state in DeadLetter.REDRIVABLE]
    query = urlencode([("plan", f"{plan.pk}:{outcome}"), *states])
    url = f"{reverse('admin:eventbus_deadletter_dry_run')}?{query}"
    return Button(label=label, url=url, why_not=_refusal(user, plan))


def _outcomes(request: HttpRequest, plan: Plan, progress: Progress) -> dict[str, Any]:
    wanted = request.GET.get("outcome", "")
    count = next((part.count for part in progress.parts if part.state == wanted), None)
    if count is None:
        return {"outcome": "", "outcomes": latest_outcomes(plan), "outcome_count": progress.settled}
    after = request.GET.get("after", "")
    outcomes, following = outcomes_of(plan, wanted, _place(after))
    return {
        "outcome": wanted,
        "outcomes": outcomes,
        "outcome_count": count,
        "is_first": not after,
        "following": following,
    }


def _place(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _verbs(screen: PlanAdmin, request: HttpRequest, plan: Plan) -> list[Any]:
    refusal = _refusal(request.user, plan)
    return [
        {"label": label, "url": url_of(screen, "verb", plan.pk, name), "why_not": refusal}
        for name, (label, states) in VERBS.items()
        if plan.state in states
    ]


def verb_view(screen: PlanAdmin, request: HttpRequest, plan_id: int, verb: str) -> HttpResponse:
    """Start, pause, resume or cancel a plan."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    require_view(screen, request)
    if verb not in plans.VERBS:
        raise Http404(_("There is no such verb."))
    if refusal := _refusal(request.user, found(screen, request, plan_id)):
        raise PermissionDenied(refusal)
    try:
        plans.VERBS[verb](plan_id, by=request.user.get_username(), using=_database(screen, request))
    except BadPlan as error:
        screen.message_user(request, str(error), messages.WARNING)
    return redirect(url_of(screen, "change", plan_id))


def _refusal(user: Any, plan: Plan) -> str:
    """Say why *user* may not steer *plan*, or return ""."""
    verb: Verb = "redrive" if plan.is_redrive else "discard"
    return why_not_everywhere(user, verb, plan.queues)


def _database(screen: PlanAdmin, request: HttpRequest) -> str:
    return str(screen.get_queryset(request).select_for_update().db)
