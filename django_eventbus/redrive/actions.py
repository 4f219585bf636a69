"""The actions of plans on a batch of dead letters: re-drive, discard or restore."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from django.db.models import QuerySet
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from django_eventbus.events.text import storable
from django_eventbus.models import DeadLetter, InboxRecord, Plan, PlannedLetter
from django_eventbus.models.dead_letters import DeadLetterQuerySet
from django_eventbus.models.reasons import SkipReason
from django_eventbus.redrive.letters import (
    BatchResult,
    lock_unchanged,
    redrive_batch,
    skip_locked,
)

LetterState = DeadLetter.State

#: The subscription and the message id.
Name = tuple[str, str]

#: Without body, payload and traceback.
_COLUMNS = ("id", "subscription", "message_id", "state", "round", "redriven_by")

State = PlannedLetter.State


def discard_batch(expected: Mapping[int, int], *, plan: Plan, using: str) -> BatchResult:
    """Discard the dead letters that are still in their *expected* rounds. In a transaction only."""
    letters, records, moved = _locked(expected, DeadLetter.REDRIVABLE, using)
    now = timezone.now()
    # Handled records do not change: otherwise a restore would let the handler run again.
    records.exclude(state=InboxRecord.State.HANDLED).update(
        state=InboxRecord.State.SKIPPED,
        error=storable(plan.reason, 2000),
        skip_reason=SkipReason.DISCARDED,
        settled_at=now,
        delay=None,
        due_at=None,
    )
    letters.update(
        state=LetterState.DISCARDED,
        closed_at=now,
        closed_by=storable(plan.created_by, 255),
        note=storable(plan.reason, 2000),
        unanswered="",
    )
    return moved


def restore_batch(expected: Mapping[int, int], *, plan: Plan, using: str) -> BatchResult:
    """Open the dead letters that are still discarded. In a transaction only."""
    letters, records, moved = _locked(expected, (LetterState.DISCARDED,), using)
    # Otherwise the inbox would skip a re-drive as already settled.
    by_discard = records.filter(skip_reason=SkipReason.DISCARDED)
    by_discard.update(state=InboxRecord.State.PARKED, skip_reason="", settled_at=timezone.now())
    letters.update(state=LetterState.OPEN, closed_at=None, closed_by="", note="")
    return moved


def _locked(
    expected: Mapping[int, int], states: Collection[str], using: str
) -> tuple[DeadLetterQuerySet, QuerySet[InboxRecord], BatchResult]:
    """Lock and return the dead letters that can change now, their records, and the batch result."""
    letters = DeadLetter.objects.using(using)
    found = letters.filter(pk__any_of=list(expected)).order_by("pk")
    # Lock the records before the dead letters, as the consumer does: the other order can deadlock.
    records, busy = _locked_records(found, using)
    chosen, moved = lock_unchanged(expected, found.only(*_COLUMNS), states)
    names = {each.pk: (each.subscription, each.message_id) for each in chosen}
    free = {key: name for key, name in names.items() if name not in busy}
    moved.done.update(dict.fromkeys(free, ""))
    keys = [records[name] for name in free.values() if name in records]
    mine = InboxRecord.objects.using(using).filter(pk__any_of=keys)
    return letters.filter(pk__any_of=list(free)), mine, moved


def _locked_records(found: DeadLetterQuerySet, using: str) -> tuple[dict[Name, int], set[Name]]:
    """Return the records of *found* by name, and the names that a running handler has locked."""
    ids = list(found.values_list("message_id", flat=True))
    records = InboxRecord.objects.using(using).filter(message_id__in=ids).order_by("pk")
    names = {
        (subscription, message_id): key
        for subscription, message_id, key in records.values_list("subscription", "message_id", "pk")
    }
    free = set(skip_locked(records).values_list("pk", flat=True))
    return names, {name for name, key in names.items() if key not in free}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAction:
    """The functions, states and texts of an action."""

    #: The states in which the action can change a dead letter.
    states: tuple[str, ...]
    #: Changes the dead letters that are as expected, in the caller's transaction.
    do: Callable[..., BatchResult]
    #: The state of a planned letter after the action.
    done: str
    #: All states that a planned letter can have.
    outcomes: tuple[str, ...]
    #: The verbs in the audit for the creation of the plan, and for its end.
    made: str
    ended: str
    nothing: Promise


ACTIONS: dict[str, PlanAction] = {
    Plan.Action.REDRIVE: PlanAction(
        states=DeadLetter.REDRIVABLE,
        do=redrive_batch,
        done=State.SENT,
        outcomes=(
            State.PENDING, State.SENT, State.HEALED, State.FAILED, State.SKIPPED, State.UNKNOWN,
        ),
        made="plan re-drive",
        ended="plan ended",
        nothing=_("None of these dead letters can be re-driven."),
    ),
    Plan.Action.DISCARD: PlanAction(
        states=DeadLetter.REDRIVABLE,
        do=discard_batch,
        done=State.DISCARDED,
        outcomes=(State.PENDING, State.DISCARDED, State.SKIPPED),
        made="discard",
        ended="discarded",
        nothing=_("None of these dead letters can be discarded."),
    ),
    Plan.Action.RESTORE: PlanAction(
        states=(DeadLetter.State.DISCARDED,),
        do=restore_batch,
        done=State.RESTORED,
        outcomes=(State.PENDING, State.RESTORED, State.SKIPPED),
        made="restore",
        ended="restored",
        nothing=_("None of these dead letters is discarded."),
    ),
}  # fmt: skip
