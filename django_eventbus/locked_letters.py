"""Dead letters that a plan may change now: locked, in the round and in a state that it expects."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from django.db import connections, models

from django_eventbus.models import DeadLetter
from django_eventbus.models.dead_letter import DeadLetterQuerySet
from django_eventbus.sentences import english, known
from django_eventbus.sentences import gettext_noop as _

Row = TypeVar("Row", bound=models.Model)

PRUNED = known(_("its dead letter was pruned"))
CHANGED = known(_("it was %(state)s meanwhile"))
_REDRIVEN = known(_("it was re-driven meanwhile"))
_REDRIVEN_BY = known(_("it was re-driven by %(by)s meanwhile"))


@dataclass(frozen=True, slots=True)
class Moved:
    """What came of those that a plan wanted to change. Who is in neither may be changed later."""

    #: The id of the edited message, or "", by dead letter.
    done: dict[int, str] = field(default_factory=dict)
    #: Why nothing was done, and never will be, by dead letter.
    reasons: dict[int, str] = field(default_factory=dict)


def without_waiting(rows: models.QuerySet[Row]) -> models.QuerySet[Row]:
    """Lock those of *rows* that nobody else has locked."""
    # A handler holds its dead letter for as long as it runs. The relay, which carries plans
    # out, must not wait for it: nothing else would be sent meanwhile.
    can_skip = connections[rows.db].features.has_select_for_update_skip_locked
    return rows.select_for_update(skip_locked=can_skip)


def still_as_expected(
    expected: Mapping[int, int], found: DeadLetterQuerySet, states: Collection[str]
) -> tuple[list[DeadLetter], Moved]:
    """Lock and return those in their *expected* rounds and in *states*; say why the others are not."""
    locked = list(without_waiting(found))
    moved = Moved(reasons=_reasons_of_missing(expected, found, locked))
    letters = []
    for letter in locked:
        if why := _why_not(letter, expected[letter.pk], states):
            moved.reasons[letter.pk] = why
        else:
            letters.append(letter)
    return letters, moved


def _reasons_of_missing(
    expected: Mapping[int, int], found: DeadLetterQuerySet, locked: list[DeadLetter]
) -> dict[int, str]:
    """Say why those that could not be locked will not move; without a reason, they may later."""
    missing = expected.keys() - {letter.pk for letter in locked}
    if not missing:
        return {}
    others = {each.pk: each for each in found.filter(pk__in=missing)}
    reasons = dict.fromkeys(missing - others.keys(), PRUNED)
    for key, letter in others.items():
        # Known for good, though it is not locked: a round never comes again.
        if letter.round != expected[key]:
            reasons[key] = _why_not(letter, expected[key], DeadLetter.State.values)
    return reasons


def _why_not(letter: DeadLetter, expected_round: int, states: Collection[str]) -> str:
    if letter.round != expected_round:
        if not letter.redriven_by:
            return _REDRIVEN
        return _REDRIVEN_BY % {"by": letter.redriven_by}
    if letter.state not in states:
        return CHANGED % {"state": english(DeadLetter.State(letter.state).label)}
    return ""
