"""What plans can do to dead letters: to which, how, and what that is called. Values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from django_eventbus.closures import discard_together, restore_together
from django_eventbus.locked_letters import Moved
from django_eventbus.models import DeadLetter, Plan, PlannedLetter
from django_eventbus.redrive import redrive_together

State = PlannedLetter.State


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAction:
    """One of them."""

    #: The states in which a dead letter can be meant.
    states: tuple[str, ...]
    #: Does it to those that are as expected, in the caller's transaction.
    do: Callable[..., Moved]
    #: The state of a planned letter to which it was done.
    done: str
    #: The states that a planned letter can come to.
    outcomes: tuple[str, ...]
    #: What the audit calls the making of the plan, and its end.
    made: str
    ended: str
    nothing: Promise


ACTIONS: dict[str, PlanAction] = {
    Plan.Action.REDRIVE: PlanAction(
        states=DeadLetter.REDRIVABLE,
        do=redrive_together,
        done=State.SENT,
        outcomes=(
            State.PENDING, State.SENT, State.HEALED, State.FAILED, State.SKIPPED, State.UNKNOWN,
        ),
        made="plan re-drive",
        ended="plan ended",
        nothing=_("Nothing that could be re-driven is among these dead letters."),
    ),
    Plan.Action.DISCARD: PlanAction(
        states=DeadLetter.REDRIVABLE,
        do=discard_together,
        done=State.DISCARDED,
        outcomes=(State.PENDING, State.DISCARDED, State.SKIPPED),
        made="discard",
        ended="discarded",
        nothing=_("Nothing that could be discarded is among these dead letters."),
    ),
    Plan.Action.RESTORE: PlanAction(
        states=(DeadLetter.State.DISCARDED,),
        do=restore_together,
        done=State.RESTORED,
        outcomes=(State.PENDING, State.RESTORED, State.SKIPPED),
        made="restore",
        ended="restored",
        nothing=_("Nothing that was discarded is among these dead letters."),
    ),
}  # fmt: skip
