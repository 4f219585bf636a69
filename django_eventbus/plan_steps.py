"""Carry plans out: settle what is known, send what may go, a step at a time, by any worker."""

from __future__ import annotations

import sys
from datetime import datetime

from django.db import connections, transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from django_eventbus import audit
from django_eventbus.models import Plan, PlannedLetter
from django_eventbus.models.alike import save_alike
from django_eventbus.pacing import Outcomes, allowance, is_failing
from django_eventbus.plan_outcomes import known_outcomes
from django_eventbus.plans import progress
from django_eventbus.redrive import close_replaced, redrive_together
from django_eventbus.sentences import gettext_noop as _
from django_eventbus.sentences import known

#: Dead letters in one transaction: their bodies are in memory then.
_BATCH = 100
_SETTLE_BATCH = 1_000
#: The latest outcomes that decide whether a plan pauses.
_WINDOW = 50

_FAILING = known(
    _("%(failed)s of the latest %(total)s failed again, which is more than %(most)s %%.")
)
_CANCELLED = known(_("the plan was cancelled"))

State = Plan.State
Planned = PlannedLetter.State


def step_plans(using: str) -> int:
    """Take each plan that is under way a step further; return how many dead letters moved."""
    close_replaced(using)
    plans = Plan.objects.using(using).under_way()
    return sum(_step(plan_id, using) for plan_id in plans.values_list("pk", flat=True))


def _step(plan_id: int, using: str) -> int:
    with transaction.atomic(using=using):
        plan = _claimed(plan_id, using)
        if plan is None:
            return 0
        settled = _settle(plan, using)
        _decide(plan, using)
        sent = _send(plan, using) if plan.is_started else 0
        _end_if_over(plan, using)
        sys.audit("eventbus.plan_steps.written")
    if sent or settled:
        sys.audit("eventbus.plan_steps.committed")
    return sent


def _claimed(plan_id: int, using: str) -> Plan | None:
    """Lock the plan, or return None while another worker has it."""
    plans = Plan.objects.using(using).under_way().filter(pk=plan_id)
    if connections[using].features.has_select_for_update_skip_locked:
        return plans.select_for_update(skip_locked=True).first()
    # A write makes SQLite let nobody else write until the end of this transaction.
    plans.update(note=F("note"))
    return plans.first()


def _settle(plan: Plan, using: str) -> int:
    """Ask the dead letters what has become of their re-drives."""
    now, rows = timezone.now(), []
    for row, state, why in known_outcomes(plan, using):
        row.state, row.why, row.settled_at = state, why[:255], now
        rows.append(row)
    save_alike(rows, ["state", "why", "settled_at"], using)
    return len(rows)


def _decide(plan: Plan, using: str) -> None:
    """Pause a plan that does harm; let the rest follow a canary that did not."""
    if not plan.is_started:
        return
    outcomes = _latest_outcomes(plan, using)
    is_canary_known = plan.state == State.CANARY and not _canary_left(plan, using)
    if is_failing(outcomes, plan.fail_percent, is_complete=is_canary_known):
        values = {"failed": outcomes.failed, "total": outcomes.total, "most": plan.fail_percent}
        plan.pause(_FAILING % values)
        _audit(plan, "plan paused", using)
    elif is_canary_known:
        plan.pass_canary()


def _latest_outcomes(plan: Plan, using: str) -> Outcomes:
    since = plan.resumed_at or plan.created_at
    settled = _rows(plan, using).filter(settled_at__gt=since, sent_at__isnull=False)
    states = settled.order_by("-settled_at").values_list("state", flat=True)[:_WINDOW]
    return Outcomes.of(states)


def _canary_left(plan: Plan, using: str) -> int:
    """Return how many of the canary are still to be sent or to be known."""
    rows = _rows(plan, using)
    known = rows.filter(sent_at__isnull=False, settled_at__isnull=False)[: plan.canary].count()
    unknown = rows.filter(state__in=(Planned.PENDING, Planned.SENT))[: plan.canary].count()
    return min(plan.canary - known, unknown)


def _send(plan: Plan, using: str) -> int:
    now = timezone.now()
    room = _room(plan, using)
    number, paced_at = allowance(plan, now, min(room, _BATCH))
    if not number:
        return 0
    rows = list(_rows(plan, using).filter(state=Planned.PENDING).order_by("pk")[:number])
    sent = _redrive(plan, rows, now, using)
    plan.paced_at = paced_at
    plan.save(using=using, update_fields=["paced_at"])
    return sent


def _room(plan: Plan, using: str) -> int:
    """Return how many more may be under way now."""
    under_way = _rows(plan, using).filter(state=Planned.SENT).count()
    room = plan.in_flight - under_way
    if plan.state != State.CANARY:
        return room
    return min(room, _canary_left(plan, using) - under_way)


def _redrive(plan: Plan, rows: list[PlannedLetter], now: datetime, using: str) -> int:
    expected = {row.dead_letter_id: row.round for row in rows}
    departed = redrive_together(expected, plan=plan, using=using)
    sys.audit("eventbus.plan_steps.sent")
    for row in rows:
        key = row.dead_letter_id
        if key in departed.sent:
            row.state, row.sent_as, row.sent_at = Planned.SENT, departed.sent[key], now
        elif key in departed.reasons:
            row.state, row.why, row.settled_at = Planned.SKIPPED, departed.reasons[key][:255], now
    save_alike(rows, ["state", "why", "settled_at", "sent_as", "sent_at"], using)
    return len(departed.sent)


def _end_if_over(plan: Plan, using: str) -> None:
    rows = _rows(plan, using)
    if plan.state == State.CANCELLED:
        _skip_pending(rows)
    if not rows.filter(state__in=(Planned.PENDING, Planned.SENT)).exists():
        plan.end()
        _audit(plan, "plan ended", using)


def _audit(plan: Plan, verb: str, using: str) -> None:
    audit.record(
        verb,
        by=plan.created_by,
        why=plan.note,
        selection=plan.filter,
        using=using,
        plan_id=plan.pk,
        outcome=progress(plan),
    )


def _skip_pending(rows: QuerySet[PlannedLetter]) -> None:
    pending = rows.filter(state=Planned.PENDING)
    batch = pending.order_by("pk").values("pk")[:_SETTLE_BATCH]
    pending.filter(pk__in=list(batch.values_list("pk", flat=True))).update(
        state=Planned.SKIPPED, why=_CANCELLED, settled_at=timezone.now()
    )


def _rows(plan: Plan, using: str) -> QuerySet[PlannedLetter]:
    return PlannedLetter.objects.using(using).filter(plan=plan)
