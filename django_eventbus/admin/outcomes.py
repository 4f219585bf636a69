"""What has become of a dead letter, in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.utils.translation import gettext as _

from django_eventbus.admin.excerpts import visible
from django_eventbus.admin.read_only import ago
from django_eventbus.models import DeadLetter


def outcome_in_words(letter: DeadLetter) -> str:
    """Say what has become of the dead letter so far."""
    words = {"round": letter.round, "note": visible(letter.note)}
    match letter.state:
        case DeadLetter.State.OPEN if letter.round:
            return _("failed again in round %(round)d") % words
        case DeadLetter.State.REDRIVING:
            return _("re-driving in round %(round)d") % words
        case DeadLetter.State.UNKNOWN:
            return _("unanswered: %(note)s") % words
        case DeadLetter.State.DISCARDED:
            return _("discarded: %(note)s") % words
        case DeadLetter.State.HEALED if letter.round:
            return _("healed in round %(round)d") % words
    return letter.get_state_display()


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A dead letter as a list shows it."""

    letter: DeadLetter
    outcome: str
    parked: str


def lines_of(letters: Iterable[DeadLetter]) -> list[Line]:
    """Return the lines of a list."""
    return [
        Line(letter=letter, outcome=outcome_in_words(letter), parked=ago(letter.parked_at))
        for letter in letters
    ]
