"""Discard, restore or ignore dead letters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections, transaction

from django_eventbus.dead_letters import audit
from django_eventbus.dead_letters.query import freeze, matching
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.durations import require_within_calendar
from django_eventbus.exceptions import NothingToDo
from django_eventbus.models import DeadLetter, Plan
from django_eventbus.models.dead_letters import DeadLetterQuerySet
from django_eventbus.redrive.actions import ACTIONS
from django_eventbus.redrive.letters import skip_locked
from django_eventbus.redrive.plans import Pace, make_unpaced_plan, progress
from django_eventbus.redrive.runner import steps

#: Dead letters in one step.
_BATCH = 500
#: Seconds to wait if a step changed nothing: the rate is used up, or handlers have locks.
_PAUSE = 0.05

Action = Plan.Action
#: Called after each step with the number of changed dead letters so far.
Progress = Callable[[int], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    """The numbers of ignored dead letters, and of those that a running handler has locked."""

    changed: int
    left: int


def discard(ids: Iterable[int], *, reason: str, by: str, using: str) -> int:
    """Discard open dead letters and return their number. A copy that still arrives is not run."""
    chosen = list(ids)
    if not chosen:
        return 0
    return discard_selected(Selection.of_ids(chosen), by=by, reason=reason, using=using)


def discard_selected(
    selection: Selection, *, by: str, reason: str, using: str, limit: int | None = None
) -> int:
    """Discard the dead letters of *selection* that can be re-driven now; return their number."""
    pace = unpaced(limit=limit)
    return _closed(Action.DISCARD, selection, by=by, reason=reason, using=using, pace=pace)


def restore_selected(selection: Selection, *, by: str, reason: str, using: str) -> int:
    """Open the discarded dead letters of *selection* again; return their number."""
    pace = unpaced()
    return _closed(Action.RESTORE, selection, by=by, reason=reason, using=using, pace=pace)


def ignore_selected(
    selection: Selection, until: datetime | None, *, by: str, reason: str, using: str
) -> int:
    """
    Hide the waiting dead letters of *selection* until a time; with None, show them again.

    Return their number. Dead letters whose handler is running do not change.
    Raise ValueError if *until* is too far away.
    """
    return ignore_unlocked(selection, until, by=by, reason=reason, using=using).changed


def ignore_unlocked(
    selection: Selection, until: datetime | None, *, by: str, reason: str, using: str
) -> Ignored:
    """Do the same as ignore_selected(), but also return how many did not change."""
    if until:
        require_within_calendar(until)
    chosen = freeze(selection, using)
    letters = matching(chosen, using).filter(state__in=DeadLetter.WAITING).order_by()
    # In UTC, as in the row, so that the entry can be found by this value.
    facts: dict[str, Any] = {"until": until.astimezone(UTC).isoformat() if until else ""}
    with transaction.atomic(using=using):
        done = _ignore(letters, until)
        if done.left:
            facts["left"] = done.left
        audit.record(
            "ignore", by=by, why=reason, selection=chosen, using=using, count=done.changed,
            outcome=facts,
        )  # fmt: skip
    return done


def _ignore(letters: DeadLetterQuerySet, until: datetime | None) -> Ignored:
    total = letters.count()
    free = list(skip_locked(letters).values_list("pk", flat=True))
    for start in range(0, len(free), _BATCH):
        batch = DeadLetter.objects.using(letters.db).filter(pk__any_of=free[start : start + _BATCH])
        batch.update(ignored_until=until)
    return Ignored(changed=len(free), left=max(total - len(free), 0))


def unpaced(*, canary: int = 0, rate: float | None = None, limit: int | None = None) -> Pace:
    """Return a pace for changes in the database only: without limits unless given."""
    return Pace(canary=canary, rate=rate, limit=limit, in_flight=_BATCH)


def start_plan(
    action: str, selection: Selection, *, by: str, reason: str, using: str, pace: Pace
) -> Plan:
    """Create and start a plan of *action* for *selection* as of now. The workers carry it out."""
    # In one transaction: a crash in between would leave a plan that nobody starts.
    with transaction.atomic(using=using):
        plan = make_unpaced_plan(action, selection, by=by, reason=reason, using=using, pace=pace)
        plan.start()
    return plan


def run_to_end(plan: Plan, on_step: Progress = lambda done: None) -> None:
    """
    Run *plan* in this process until it ends or pauses. Workers may run it at the same time.

    In a transaction, it stops when it would have to wait, and the workers run the rest.
    """
    done = 0
    for moved in steps(plan):
        done += moved
        on_step(done)
        if moved:
            continue
        if not _may_wait(plan):
            return
        time.sleep(_PAUSE)


def run_for(plan: Plan, seconds: float) -> None:
    """Run *plan* in this process for at most *seconds*; the workers run the rest."""
    until = time.monotonic() + seconds
    for moved in steps(plan):
        if time.monotonic() > until or not (moved or _may_wait(plan)):
            return
        if not moved:
            # A worker may have locked the plan for a moment.
            time.sleep(_PAUSE)


def _may_wait(plan: Plan) -> bool:
    # In a transaction, a wait could be an unnoticed deadlock with the process that has the locks.
    return not connections[plan._state.db or DEFAULT_DB_ALIAS].in_atomic_block


def _closed(
    action: str, selection: Selection, *, by: str, reason: str, using: str, pace: Pace
) -> int:
    try:
        plan = start_plan(action, selection, by=by, reason=reason, using=using, pace=pace)
    except NothingToDo:
        return 0
    run_to_end(plan)
    return progress(plan)[ACTIONS[action].done]
