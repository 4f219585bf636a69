"""Create, start, pause, resume and cancel plans."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.db import connections, transaction
from django.db.models import Count
from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_eventbus.conf import conf, parsers
from django_eventbus.dead_letters import audit
from django_eventbus.dead_letters.query import freeze, matching
from django_eventbus.dead_letters.redaction import redacted
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.events.text import storable
from django_eventbus.exceptions import BadPlan, NothingToDo
from django_eventbus.models import Plan, PlannedLetter
from django_eventbus.models.dead_letters import DeadLetterQuerySet
from django_eventbus.redrive.actions import ACTIONS
from django_eventbus.redrive.edited_message import require_storable

#: The maximum length of a patch in the audit. The plan stores the whole patch.
_PATCH_LIMIT = 300

#: A plan, a discard or a re-drive of more dead letters than this needs a reason.
REASON_ABOVE = 100

_LIMITS: dict[str, Callable[[object], object]] = {
    "canary": parsers.count_or_none,
    "rate": parsers.rate,
    "in_flight": parsers.count,
    "fail_percent": parsers.percent,
    "tries": parsers.count,
    "limit": parsers.count,
}

_REFUSALS = {
    "start": gettext_lazy("Plan %(id)d is %(state)s and cannot be started."),
    "pause": gettext_lazy("Plan %(id)d is %(state)s and cannot be paused."),
    "resume": gettext_lazy("Plan %(id)d is %(state)s and cannot be resumed."),
    "cancel": gettext_lazy("Plan %(id)d is %(state)s and cannot be cancelled."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The pace of a plan. The defaults are in the settings."""

    #: The number of dead letters in the canary; 0 means no canary.
    canary: int = field(default_factory=lambda: conf.redrive.canary)
    #: Dead letters per second; None means no limit.
    rate: float | None = field(default_factory=lambda: conf.redrive.rate)
    #: The maximum number of re-drives without an outcome at the same time.
    in_flight: int = field(default_factory=lambda: conf.redrive.in_flight)
    #: The plan pauses if more than this percentage of the latest outcomes are failures.
    fail_percent: int = field(default_factory=lambda: conf.redrive.fail_percent)
    tries: int = field(default_factory=lambda: conf.redrive.tries)
    #: The maximum number of dead letters, the first parked first; None means all.
    limit: int | None = None

    def __post_init__(self) -> None:
        """Raise BadPlan if a value is not valid."""
        given = {name: getattr(self, name) for name in _LIMITS}
        for name, value in given.items():
            try:
                # None means no limit.
                if value is not None:
                    _LIMITS[name](value)
            except ValueError as error:
                raise BadPlan(f"{name}: {error}.") from None


def make_plan(
    selection: Selection,
    *,
    by: str,
    reason: str,
    using: str,
    pace: Pace | None = None,
    patch: Any = None,
) -> Plan:
    """
    Create a plan that re-drives the dead letters of *selection* as of now, without starting it.

    Raise BadPlan if it needs a reason and has none, or if *patch* cannot be stored.
    Raise NothingToDo if it would have no dead letters.
    """
    require_storable(patch)
    plan = _plan(by, reason, pace or Pace())
    plan.patch = patch
    return _written(plan, selection, pace, using)


def make_unpaced_plan(
    action: str, selection: Selection, *, by: str, reason: str, using: str, pace: Pace
) -> Plan:
    """Do the same as make_plan() for a plan that discards or restores."""
    plan = _plan(by, reason, pace)
    plan.action = action
    return _written(plan, selection, pace, using)


def _plan(by: str, reason: str, pace: Pace) -> Plan:
    return Plan(
        reason=storable(reason, 2000),
        canary=pace.canary,
        rate=pace.rate,
        in_flight=pace.in_flight,
        fail_percent=pace.fail_percent,
        tries=pace.tries,
        created_by=storable(by, 255),
    )


def _written(plan: Plan, selection: Selection, pace: Pace | None, using: str) -> Plan:
    chosen, action = freeze(selection, using), ACTIONS[plan.action]
    letters = matching(chosen, using).filter(state__in=action.states)
    if pace and pace.limit is not None:
        letters = letters.order_by("parked_at", "pk")[: pace.limit]
    with transaction.atomic(using=using):
        plan.filter = audit.recorded(chosen)
        plan.save(using=using, force_insert=True)
        count = _freeze_rows(plan, letters, using)
        sys.audit("eventbus.plans.frozen")
        if not count:
            raise NothingToDo(str(action.nothing))
        require_reason(plan.reason, count)
        plan.total, plan.queues = count, _queues(plan, using)
        plan.save(using=using, update_fields=["total", "queues"])
        audit.record(
            action.made,
            by=plan.created_by,
            why=plan.reason,
            selection=chosen,
            using=using,
            count=count,
            plan_id=plan.pk,
            outcome=_changes(plan),
        )
    return plan


def _changes(plan: Plan) -> dict[str, str]:
    """Return the patch for the audit, shortened and redacted."""
    # Redacted for everybody: the permission to read the audit does not include secrets.
    if plan.patch is None:
        return {}
    shown = redacted(plan.patch, "payload", conf.redact)
    text = json.dumps(shown, ensure_ascii=False)
    return {"patch": text if len(text) <= _PATCH_LIMIT else f"{text[: _PATCH_LIMIT - 1]}…"}


def require_reason(reason: str, count: int) -> None:
    """Raise BadPlan if *count* dead letters need a reason and *reason* is empty."""
    if count > REASON_ABOVE and not reason.strip():
        words = _("A reason is required for more than %(number)s dead letters.")
        raise BadPlan(words % {"number": number_format(REASON_ABOVE, force_grouping=True)})


def start(plan_id: int, *, by: str, using: str) -> Plan:
    """Start a plan, so that the workers carry it out."""
    return change(plan_id, "start", by=by, using=using)


def pause(plan_id: int, *, by: str, using: str) -> Plan:
    """Pause a plan. It still records the outcomes of re-drives that were sent."""
    return change(plan_id, "pause", by=by, using=using)


def resume(plan_id: int, *, by: str, using: str) -> Plan:
    """Continue a paused plan. Only failures of later re-drives pause it again."""
    return change(plan_id, "resume", by=by, using=using)


def cancel(plan_id: int, *, by: str, using: str) -> Plan:
    """Cancel a plan. It still records the outcomes of re-drives that were sent."""
    return change(plan_id, "cancel", by=by, using=using)


def change(plan_id: int, verb: str, *, by: str, using: str) -> Plan:
    """Apply one of Plan.VERBS and audit it; raise BadPlan if the plan's state does not allow it."""
    with transaction.atomic(using=using):
        # The lock waits until a worker has finished its current step.
        plan = Plan.objects.using(using).select_for_update().get(pk=plan_id)
        if not plan.allows(verb):
            words = {"id": plan_id, "state": plan.get_state_display()}
            raise BadPlan(str(_REFUSALS[verb]) % words)
        match verb:
            case "start":
                plan.start()
            case "pause":
                plan.pause(by)
            case "resume":
                plan.resume(Plan.State.CANARY if canary_left(plan) else Plan.State.RUNNING)
            case "cancel":
                plan.cancel(by)
        audit.record(
            f"{verb} plan",
            by=by,
            why=plan.reason,
            selection=plan.filter,
            using=using,
            plan_id=plan_id,
        )
    return plan


def progress(plan: Plan) -> dict[str, int]:
    """Count the plan's dead letters by state, including states without any."""
    # The counts of an ended plan are final, and a list may show many of them.
    counts = plan.counts if plan.ended_at else _counted(plan)
    return {str(state): counts.get(state, 0) for state in ACTIONS[plan.action].outcomes}


def _counted(plan: Plan) -> dict[str, int]:
    rows = PlannedLetter.objects.using(plan._state.db).filter(plan=plan).order_by()
    return dict(rows.values_list("state").annotate(Count("pk")))


def _freeze_rows(plan: Plan, letters: DeadLetterQuerySet, using: str) -> int:
    """Write a row for each dead letter, in one statement, because there may be a million."""
    columns = letters.values_list("id", "round", "parked_at")
    chosen, parameters = columns.query.get_compiler(using).as_sql()
    sql = (
        f"INSERT INTO {PlannedLetter._meta.db_table} "  # noqa: S608
        "(plan_id, dead_letter_id, round, state, reason, detail, sent_as) "
        f"SELECT %s, chosen.id, chosen.round, %s, '', '', '' FROM ({chosen}) AS chosen "
        # The plan processes its rows in order, so the first parked must come first.
        "ORDER BY chosen.parked_at, chosen.id"
    )
    with connections[using].cursor() as cursor:
        cursor.execute(sql, (plan.pk, str(PlannedLetter.State.PENDING), *parameters))
        return int(cursor.rowcount)


def _queues(plan: Plan, using: str) -> list[str]:
    rows = PlannedLetter.objects.using(using).filter(plan=plan).order_by()
    return sorted(rows.values_list("dead_letter__queue", flat=True).distinct())


def canary_left(plan: Plan) -> int:
    """Return how many of the canary have not been sent or have no outcome."""
    rows = PlannedLetter.objects.using(plan._state.db).filter(plan=plan)
    tried = rows.filter(sent_at__isnull=False, settled_at__isnull=False)
    if plan.is_redrive:
        # Failures from before the last resume do not count: the cause may have been fixed since.
        tried = tried.filter(sent_at__gt=plan.resumed_at) if plan.resumed_at else tried.none()
    known = tried[: plan.canary].count()
    unknown = rows.filter(state__in=PlannedLetter.UNSETTLED)[: plan.canary].count()
    return min(plan.canary - known, unknown)
