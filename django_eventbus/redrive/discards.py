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
#: Seconds to wait when nothing could be done: the rate is used up, or a handler holds the rest.
_PAUSE = 0.05

Action = Plan.Action
#: Told after each step how many are done so far.
Progress = Callable[[int], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    """How many are out of sight, and how many were left: a handler holds them."""

    changed: int
    left: int


def discard(ids: Iterable[int], *, reason: str, by: str, using: str) -> int:
    """Close open dead letters for good; a copy that still arrives is not run. Return how many."""
    chosen = list(ids)
    if not chosen:
        return 0
    return discard_selected(Selection.of_ids(chosen), by=by, reason=reason, using=using)


def discard_selected(
    selection: Selection, *, by: str, reason: str, using: str, limit: int | None = None
) -> int:
    """Close what can be re-driven of *selection*, as it is now, for good; return how many."""
    pace = unpaced(limit=limit)
    return _closed(Action.DISCARD, selection, by=by, reason=reason, using=using, pace=pace)


def restore_selected(selection: Selection, *, by: str, reason: str, using: str) -> int:
    """Open discarded dead letters of *selection* again; return how many."""
    pace = unpaced()
    return _closed(Action.RESTORE, selection, by=by, reason=reason, using=using, pace=pace)


def ignore_selected(
    selection: Selection, until: datetime | None, *, by: str, reason: str, using: str
) -> int:
    """
    Put what waits of *selection* out of sight until then; None: show it again.

    Return how many; those whose handler is at work are left as they are.
    Raise ValueError if *until* is at an end of the calendar.
    """
    return ignore_unlocked(selection, until, by=by, reason=reason, using=using).changed


def ignore_unlocked(
    selection: Selection, until: datetime | None, *, by: str, reason: str, using: str
) -> Ignored:
    """Do as ignore_selected(), and tell also how many were left."""
    if until:
        require_within_calendar(until)
    chosen = freeze(selection, using)
    letters = matching(chosen, using).filter(state__in=DeadLetter.WAITING).order_by()
    # In UTC, as the row has it: by that the entry is found again.
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
    meant = letters.count()
    free = list(skip_locked(letters).values_list("pk", flat=True))
    for start in range(0, len(free), _BATCH):
        batch = DeadLetter.objects.using(letters.db).filter(pk__any_of=free[start : start + _BATCH])
        batch.update(ignored_until=until)
    return Ignored(changed=len(free), left=max(meant - len(free), 0))


def unpaced(*, canary: int = 0, rate: float | None = None, limit: int | None = None) -> Pace:
    """Return a pace for what nobody has to answer: as fast as it goes, unless told otherwise."""
    return Pace(canary=canary, rate=rate, limit=limit, in_flight=_BATCH)


def start_plan(
    action: str, selection: Selection, *, by: str, reason: str, using: str, pace: Pace
) -> Plan:
    """Write a plan of *action* over *selection* as it is now; workers carry it out from now on."""
    # Together: a kill in between would leave a plan that nobody meant to start by hand.
    with transaction.atomic(using=using):
        plan = make_unpaced_plan(action, selection, by=by, reason=reason, using=using, pace=pace)
        plan.start()
    return plan


def run_to_end(plan: Plan, on_step: Progress = lambda done: None) -> None:
    """
    Take *plan* to its end in this process, or to where it pauses; workers may help.

    In a transaction, only as far as it goes without waiting: the workers have the rest after it.
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
    """Take *plan* as far as it goes in so many *seconds*; the rest is left to the workers."""
    until = time.monotonic() + seconds
    for moved in steps(plan):
        if time.monotonic() > until or not (moved or _may_wait(plan)):
            return
        if not moved:
            # A worker may have the plan just now, and be done with it in a moment.
            time.sleep(_PAUSE)


def _may_wait(plan: Plan) -> bool:
    # Whoever holds the rest may wait for what this transaction holds, and nobody would see.
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
