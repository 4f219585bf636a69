"""Run plans: one step of a batch at a time."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from django_eventbus.dead_letters import audit
from django_eventbus.durations import Throttle
from django_eventbus.models import Plan, PlannedLetter
from django_eventbus.models.querysets import update_grouped
from django_eventbus.models.reasons import LetterReason, PlanNote
from django_eventbus.outages import is_outage, is_worth_running_again, proven
from django_eventbus.redrive.actions import ACTIONS
from django_eventbus.redrive.held_keys import release_held
from django_eventbus.redrive.letters import close_replaced, mark_unanswered
from django_eventbus.redrive.plans import canary_left, progress
from django_eventbus.redrive.progress import Outcomes, allowance, is_failing, known_outcomes

#: The number of re-drives in one transaction, which has all their bodies in memory.
_BATCH = 100
_SETTLE_BATCH = 1_000
#: Seconds between two searches for re-drives without an outcome and for keys to release.
_UPKEEP_EVERY = 10.0
#: The number of latest outcomes that decide whether a plan pauses.
_WINDOW = 50

logger = logging.getLogger("django_eventbus.redrive")

State = Plan.State
Planned = PlannedLetter.State


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a step of each plan."""

    #: The number of dead letters that were processed or finally skipped.
    moved: int = 0
    #: The number of new outcomes; they make room for more re-drives.
    settled: int = 0
    #: Whether the next step may have work soon.
    has_work_soon: bool = False


class PlanRunner:
    """Runs the plans of one database, and the upkeep of re-drives."""

    def __init__(self, using: str, pause: float = 0.0) -> None:
        self.using = using
        self._steps = Throttle(pause)
        self.upkeep = Throttle(_UPKEEP_EVERY)
        #: The number of dead letters that the last run processed.
        self.moved = 0
        #: Whether the last step processed or settled anything; true until the first step.
        self.is_moving = True
        #: Whether the next step may have work soon.
        self.has_work_soon = False
        self._began_at = 0.0

    def run_once(self) -> None:
        """Run a step of each plan and the upkeep of re-drives, if they are due."""
        self.moved = 0
        with proven(self.using):
            if self.upkeep.is_due():
                mark_unanswered(self.using)
                release_held(self.using)
            if self._steps.is_due():
                self._step()

    def _step(self) -> None:
        began_at = time.monotonic()
        result = step_plans(self.using)
        self.moved, self.has_work_soon = result.moved, result.has_work_soon
        self.is_moving = bool(result.moved or result.settled)
        # Set this last: another thread that reads it relies on the values above.
        self._began_at = began_at

    def is_idle_since(self, time: float) -> bool:
        """Whether all plans are idle; if one waits, a step must have begun after *time*."""
        return (self._began_at > time or not self.has_work_soon) and not self.is_moving


def step_plans(using: str) -> StepResult:
    """Run one step of each plan that is under way."""
    close_replaced(using)
    plans = Plan.objects.using(using).under_way().order_by("pk")
    results = [_step_or_pause(plan_id, using) for plan_id in plans.values_list("pk", flat=True)]
    return StepResult(
        moved=sum(each.moved for each in results),
        settled=sum(each.settled for each in results),
        has_work_soon=any(each.has_work_soon for each in results),
    )


def _step_or_pause(plan_id: int, using: str) -> StepResult:
    """Run one step of a plan; pause the plan if the step fails, so that others continue."""
    try:
        return _step(plan_id, using)
    except Exception as error:
        # An outage or a conflict with another transaction is not an error of the plan.
        if is_worth_running_again(error) or is_outage(error, using):
            raise
        # If this were raised, the relay would stop after each start and publish nothing.
        logger.error("Plan %d cannot continue.", plan_id, exc_info=True)
        _pause_after_error(plan_id, error, using)
        return StepResult()


def _pause_after_error(plan_id: int, error: Exception, using: str) -> None:
    with transaction.atomic(using=using):
        plan = _claimed(plan_id, using)
        if plan and plan.is_started:
            plan.pause_itself(PlanNote.ERROR, type(error).__name__)
            audit.record(
                "plan paused",
                by=plan.created_by,
                note=plan.note,
                note_detail=plan.note_detail,
                selection=plan.filter,
                using=using,
                plan_id=plan_id,
            )


def steps(plan: Plan) -> Iterator[int]:
    """Run *plan* step by step in this process until it ends or pauses."""
    using = plan._state.db or DEFAULT_DB_ALIAS
    while plan.is_started and plan.ended_at is None:
        moved = _step(plan.pk, using).moved
        # Before the yield: the caller may stop here, and a worker may have ended the plan.
        plan.refresh_from_db(using=using)
        yield moved


def _step(plan_id: int, using: str) -> StepResult:
    with transaction.atomic(using=using):
        plan = _claimed(plan_id, using)
        if plan is None:
            return StepResult()
        settled = _settle(plan, using) if plan.is_redrive else 0
        _decide(plan, using)
        moved = _move(plan, using) if plan.is_started else 0
        moved += _end_if_over(plan, using)
        awaits = _rows(plan, using).filter(state=Planned.SENT).exists()
        sys.audit("eventbus.plan_steps.written")
    if moved or settled:
        sys.audit("eventbus.plan_steps.committed")
    has_more = plan.is_started and (awaits or settled > 0)
    return StepResult(moved=moved, settled=settled, has_work_soon=moved > 0 or has_more)


def _claimed(plan_id: int, using: str) -> Plan | None:
    """Lock and return the plan, or None while another worker has locked it."""
    plans = Plan.objects.using(using).under_way().filter(pk=plan_id)
    if connections[using].features.has_select_for_update_skip_locked:
        return plans.select_for_update(skip_locked=True).first()
    # On SQLite, a write locks the database for other writers until the transaction ends.
    plans.update(note=F("note"))
    return plans.first()


def _settle(plan: Plan, using: str) -> int:
    """Record the outcomes of re-drives from their dead letters; return their number."""
    now, rows = timezone.now(), []
    for row, outcome in known_outcomes(plan, using):
        row.settle(*outcome, at=now)
        rows.append(row)
    update_grouped(rows, PlannedLetter.SETTLED_COLUMNS, using)
    return len(rows)


def _decide(plan: Plan, using: str) -> None:
    """Pause a plan with too many failures, or let the rest follow a successful canary."""
    if not plan.is_started:
        return
    is_canary_known = plan.state == State.CANARY and not canary_left(plan)
    if not plan.is_redrive:
        # Only a person can decide whether a discard or a restore was right.
        if is_canary_known:
            _pause(plan, PlanNote.CANARY_DONE, str(plan.canary), using)
        return
    outcomes = _latest_outcomes(plan, using)
    if is_failing(outcomes, plan.fail_percent, is_complete=is_canary_known):
        _pause(plan, PlanNote.FAILING, f"{outcomes.failed}/{outcomes.total}", using)
    elif is_canary_known:
        plan.pass_canary()


def _pause(plan: Plan, note: PlanNote, detail: str, using: str) -> None:
    plan.pause_itself(note, detail)
    _audit(plan, "plan paused", using)


def _latest_outcomes(plan: Plan, using: str) -> Outcomes:
    since = plan.resumed_at or plan.created_at
    settled = _rows(plan, using).filter(settled_at__gt=since, sent_at__gt=since)
    states = settled.order_by("-settled_at").values_list("state", flat=True)[:_WINDOW]
    return Outcomes.of(states)


def _move(plan: Plan, using: str) -> int:
    now = timezone.now()
    room = _room(plan, using)
    most = min(room, _BATCH) if plan.is_redrive else room
    number, paced_at = allowance(plan, now, most)
    if not number:
        return 0
    rows = list(_rows(plan, using).filter(state=Planned.PENDING).order_by("pk")[:number])
    moved = _do(plan, rows, now, using)
    plan.paced_at = paced_at
    plan.save(using=using, update_fields=["paced_at"])
    return moved


def _room(plan: Plan, using: str) -> int:
    """Return how many more dead letters may be processed now."""
    under_way = _rows(plan, using).filter(state=Planned.SENT).count()
    room = plan.in_flight - under_way
    if plan.state != State.CANARY:
        return room
    return min(room, canary_left(plan) - under_way)


def _do(plan: Plan, rows: list[PlannedLetter], now: datetime, using: str) -> int:
    action = ACTIONS[plan.action]
    expected = {row.dead_letter_id: row.round for row in rows}
    moved = action.do(expected, plan=plan, using=using)
    sys.audit("eventbus.plan_steps.sent")
    for row in rows:
        key = row.dead_letter_id
        if key in moved.done:
            row.state, row.sent_as, row.sent_at = action.done, moved.done[key], now
            # A re-drive waits for its outcome. The other actions are done.
            row.settled_at = None if plan.is_redrive else now
        elif key in moved.reasons:
            row.settle(Planned.SKIPPED, *moved.reasons[key], at=now)
    update_grouped(rows, [*PlannedLetter.SETTLED_COLUMNS, "sent_as", "sent_at"], using)
    return len(moved.done)


def _end_if_over(plan: Plan, using: str) -> int:
    """End a plan with nothing left to do; return how many a cancelled plan skipped."""
    rows = _rows(plan, using)
    skipped = _skip_pending(rows) if plan.state == State.CANCELLED else 0
    if not rows.filter(state__in=PlannedLetter.UNSETTLED).exists():
        plan.end(progress(plan))
        is_whole = plan.state != State.CANCELLED
        verb = ACTIONS[plan.action].ended if is_whole else "plan ended"
        _audit(plan, verb, using)
    return skipped


def _audit(plan: Plan, verb: str, using: str) -> None:
    counts = progress(plan)
    audit.record(
        verb,
        by=plan.created_by,
        why="" if plan.is_redrive else plan.reason,
        note=plan.note,
        note_detail=plan.note_detail,
        selection=plan.filter,
        using=using,
        count=0 if plan.is_redrive else counts[ACTIONS[plan.action].done],
        plan_id=plan.pk,
        outcome=counts,
    )


def _skip_pending(rows: QuerySet[PlannedLetter]) -> int:
    pending = rows.filter(state=Planned.PENDING)
    batch = pending.order_by("pk").values("pk")[:_SETTLE_BATCH]
    return pending.filter(pk__in=list(batch.values_list("pk", flat=True))).update(
        state=Planned.SKIPPED,
        reason=LetterReason.PLAN_CANCELLED,
        settled_at=timezone.now(),
    )


def _rows(plan: Plan, using: str) -> QuerySet[PlannedLetter]:
    return PlannedLetter.objects.using(using).filter(plan=plan)
