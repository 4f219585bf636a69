"""What has become of a dead letter, in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_eventbus.admin.excerpts import visible
from django_eventbus.admin.read_only import ago, localised
from django_eventbus.models import DeadLetter
from django_eventbus.sentences import translated


def outcome_in_words(letter: DeadLetter) -> str:
    """Say what has become of the dead letter so far."""
    words = {"round": letter.round, "note": note_of(letter)}
    template = _ALWAYS.get(letter.state)
    if letter.round:
        template = _IN_A_ROUND.get(letter.state, template)
    told = str(template) % words if template is not None else letter.get_state_display()
    return f"{told}, {_until(letter.ignored_until)}" if is_ignored(letter) else told


def is_ignored(letter: DeadLetter) -> bool:
    """Whether it waits, and is out of sight for now."""
    until = letter.ignored_until
    return bool(until and until > timezone.now() and letter.state in DeadLetter.WAITING)


def _until(time: datetime | None) -> str:
    written = f"{localised(time):%Y-%m-%d %H:%M}" if time else ""
    return _("ignored until %(time)s") % {"time": written}


def note_of(letter: DeadLetter) -> str:
    """Return the note: a worker's sentence in the reader's language, a person's as it is."""
    note = visible(letter.note)
    return translated(note) if letter.state == DeadLetter.State.UNKNOWN else note


_IN_A_ROUND: dict[str, str | Promise] = {
    DeadLetter.State.OPEN: gettext_lazy("failed again in round %(round)d"),
    DeadLetter.State.HEALED: gettext_lazy("healed in round %(round)d"),
}
_ALWAYS: dict[str, str | Promise] = {
    DeadLetter.State.REDRIVING: gettext_lazy("re-driving in round %(round)d"),
    DeadLetter.State.UNKNOWN: gettext_lazy("unanswered: %(note)s"),
    DeadLetter.State.DISCARDED: gettext_lazy("discarded: %(note)s"),
    DeadLetter.State.REPLACED: gettext_lazy("replaced by an edited message"),
}


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
