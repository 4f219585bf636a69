"""The state of a dead letter as a sentence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_eventbus.admin.formatting import visible
from django_eventbus.admin.model_admin import ago, localised
from django_eventbus.admin.pages import permitted_url
from django_eventbus.models import DeadLetter, InboxRecord, OutboxEvent, PlannedLetter


def outcome_in_words(letter: DeadLetter) -> str:
    """Return the state of the dead letter as text, with its round, note and ignore."""
    words = {"round": letter.round, "note": note_of(letter)}
    template = _ALWAYS.get(letter.state)
    if letter.round:
        template = _IN_A_ROUND.get(letter.state, template)
    text = str(template) % words if template is not None else letter.get_state_display()
    if letter.ignored_until is None or not is_ignored(letter):
        return text
    until = f"{localised(letter.ignored_until):%Y-%m-%d %H:%M}"
    return f"{text}, " + _("ignored until %(time)s") % {"time": until}


def is_ignored(letter: DeadLetter) -> bool:
    """Whether it waits, and is hidden from the list for now."""
    until = letter.ignored_until
    return bool(until and until > timezone.now() and letter.state in DeadLetter.WAITING)


def note_of(letter: DeadLetter) -> str:
    """Return why the letter is unanswered, in the reader's language, or a person's note."""
    if letter.state == DeadLetter.State.UNKNOWN and letter.unanswered:
        return letter.get_unanswered_display()
    return visible(letter.note)


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
class DeadLetterRow:
    """A dead letter as a list shows it."""

    letter: DeadLetter
    outcome: str
    parked: str


def rows_for_list(letters: Iterable[DeadLetter]) -> list[DeadLetterRow]:
    """Return *letters* as the rows of a list."""
    return [
        DeadLetterRow(letter=letter, outcome=outcome_in_words(letter), parked=ago(letter.parked_at))
        for letter in letters
    ]


_HANDLED = (InboxRecord.State.HANDLED, InboxRecord.State.SKIPPED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """The outcome of the edited message, and its page."""

    words: str
    #: As in TimelineEntry.
    tone: str = ""
    #: The dead letter of the edited message, if it was parked.
    letter: DeadLetter | None = None
    row: OutboxEvent | None = None

    def url(self, request: HttpRequest) -> str:
        """Return its page; "" if there is none that the user may see."""
        if self.letter:
            return permitted_url(request, "deadletter_change", self.letter.pk)
        return permitted_url(request, "outboxevent_change", self.row.pk) if self.row else ""


def replacement_of(letter: DeadLetter) -> Replacement:
    """Find the message that replaces *letter* in dead letters, inbox or outbox, in this order."""
    using = letter._state.db
    rows = OutboxEvent.objects.using(using).filter(message_id=letter.replaced_by).defer("body")
    row = rows.order_by("id").first()
    mine = {"message_id": letter.replaced_by, "subscription": letter.subscription}
    letters = DeadLetter.objects.using(using).filter(**mine, queue=letter.queue)
    if parked := letters.only("id", "state").first():
        return _parked_again(parked)
    if InboxRecord.objects.using(using).filter(**mine, state__in=_HANDLED).exists():
        return Replacement(words=str(PlannedLetter.State.HEALED.label), tone="good", row=row)
    return Replacement(words=_("awaited") if row else _("its outcome is not known"), row=row)


def _parked_again(letter: DeadLetter) -> Replacement:
    match letter.state:
        case DeadLetter.State.OPEN:
            words = str(PlannedLetter.State.FAILED.label)
            return Replacement(words=words, tone="bad", letter=letter)
        case DeadLetter.State.HEALED:
            return Replacement(words=letter.get_state_display(), tone="good", letter=letter)
    return Replacement(words=letter.get_state_display(), letter=letter)
