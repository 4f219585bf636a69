"""Close dead letters of a selection, open them again, or put them out of sight."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections, transaction

from django_eventbus import audit
from django_eventbus.exceptions import NothingToDo
from django_eventbus.locked_letters import without_waiting
from django_eventbus.matching import freeze, letters_of
from django_eventbus.models import DeadLetter, Plan
from django_eventbus.models.dead_letter import DeadLetterQuerySet
from django_eventbus.plan_actions import ACTIONS
from django_eventbus.plan_steps import steps
from django_eventbus.plans import Pace, make_closing_plan, progress
from django_eventbus.selections import Selection
from django_eventbus.time_bounds import require_within_calendar

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
    pace = closing_pace(limit=limit)
    return _closed(Action.DISCARD, selection, by=by, reason=reason, using=using, pace=pace)


def restore_selected(selection: Selection, *, by: str, reason: str, using: str) -> int:
    """Open discarded dead letters of *selection* again; return how many."""
    pace = closing_pace()
    return _closed(Action.RESTORE, selection, by=by, reason=reason, using=using, pace=pace)


def ignore_selected(
    selection: Selection, until: datetime | None, *, by: str, reason: str, using: str
) -> int:
    """
    Put what waits of *selection* out of sight until then; None: show it again.

    Return how many; those whose handler is at work are left as they are.
    Raise ValueError if *until* is at an end of the calendar.
    """
    return ignore_what_is_free(selection, until, by=by, reason=reason, using=using).changed


def ignore_what_is_free(
    selection: Selection, until: datetime | None, *, by: str, reason: str, using: str
) -> Ignored:
    """Do as ignore_selected(), and tell also how many were left."""
    if until:
        require_within_calendar(until)
    chosen = freeze(selection, using)
    letters = letters_of(chosen, using).filter(state__in=DeadLetter.WAITING).order_by()
    # In UTC, as the row has it: by that the entry is found again.
    facts: dict[str, Any] = {"until": until.astimezone(UTC).isoformat() if until else ""}
    with transaction.atomic(using=using):
        done = _put_out_of_sight(letters, until)
        if done.left:
            facts["left"] = done.left
        audit.record(
            "ignore", by=by, why=reason, selection=chosen, using=using, count=done.changed,
            outcome=facts,
        )  # fmt: skip
    return done


def _put_out_of_sight(letters: DeadLetterQuerySet, until: datetime | None) -> Ignored:
    meant = letters.count()
    free = list(without_waiting(letters).values_list("pk", flat=True))
    for start in range(0, len(free), _BATCH):
        batch = DeadLetter.objects.using(letters.db).filter(pk__any_of=free[start : start + _BATCH])
        batch.update(ignored_until=until)
    return Ignored(changed=len(free), left=max(meant - len(free), 0))


def closing_pace(*, canary: int = 0, rate: float | None = None, limit: int | None = None) -> Pace:
    """Return a pace for what nobody has to answer: as fast as it goes, unless told otherwise."""
    return Pace(canary=canary, rate=rate, limit=limit, in_flight=_BATCH)


def start_closing(
    action: str, selection: Selection, *, by: str, reason: str, using: str, pace: Pace
) -> Plan:
    """Write a plan of *action* over *selection* as it is now; workers carry it out from now on."""
    # Together: a kill in between would leave a plan that nobody meant to start by hand.
    with transaction.atomic(using=using):
        plan = make_closing_plan(action, selection, by=by, reason=reason, using=using, pace=pace)
        plan.start()
    return plan


def carry_out(plan: Plan, on_step: Progress = lambda done: None) -> None:
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
        # Whoever holds the rest may wait for what this transaction holds, and nobody would see.
        if connections[plan._state.db or DEFAULT_DB_ALIAS].in_atomic_block:
            return
        time.sleep(_PAUSE)


def begin_to_carry_out(plan: Plan, seconds: float) -> None:
    """Take *plan* as far as it goes in so many *seconds*; the rest is left to the workers."""
    until = time.monotonic() + seconds
    for moved in steps(plan):
        if not moved or time.monotonic() > until:
            return


def _closed(
    action: str, selection: Selection, *, by: str, reason: str, using: str, pace: Pace
) -> int:
    try:
        plan = start_closing(action, selection, by=by, reason=reason, using=using, pace=pace)
    except NothingToDo:
        return 0
    carry_out(plan)
    return progress(plan)[ACTIONS[action].done]
