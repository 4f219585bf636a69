"""What has become of the edited message that went out in the place of a dead letter."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _

from django_eventbus.admin.dashboard import url
from django_eventbus.models import DeadLetter, InboxRecord, OutboxEvent, PlannedLetter

_HANDLED = (InboxRecord.State.HANDLED, InboxRecord.State.SKIPPED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """How the edited message fared, and the page that tells more of it."""

    words: str
    #: As of a moment in a timeline.
    tone: str = ""
    #: Of the edited one, if it was parked.
    letter: DeadLetter | None = None
    row: OutboxEvent | None = None

    def url(self, request: HttpRequest) -> str:
        """Return its page; "" if there is none that the user may see."""
        if self.letter:
            return url(request, "deadletter_change", self.letter.pk)
        return url(request, "outboxevent_change", self.row.pk) if self.row else ""


def replacement_of(letter: DeadLetter) -> Replacement:
    """Ask dead letters, inbox and outbox, in this order, for the one that replaces *letter*."""
    using = letter._state.db
    rows = OutboxEvent.objects.using(using).filter(message_id=letter.replaced_by).defer("body")
    row = rows.order_by("id").first()
    mine = {"message_id": letter.replaced_by, "subscription": letter.subscription}
    letters = DeadLetter.objects.using(using).filter(**mine, queue=letter.queue)
    if parked := letters.only("id", "state").first():
        return _parked(parked)
    if _is_handled(InboxRecord.objects.using(using).filter(**mine)):
        return Replacement(words=str(PlannedLetter.State.HEALED.label), tone="good", row=row)
    return Replacement(words=_("awaited") if row else _("nothing is known of it"), row=row)


def _parked(letter: DeadLetter) -> Replacement:
    match letter.state:
        case DeadLetter.State.OPEN:
            words = str(PlannedLetter.State.FAILED.label)
            return Replacement(words=words, tone="bad", letter=letter)
        case DeadLetter.State.HEALED:
            return Replacement(words=letter.get_state_display(), tone="good", letter=letter)
    return Replacement(words=letter.get_state_display(), letter=letter)


def _is_handled(records: QuerySet[InboxRecord]) -> bool:
    return records.filter(state__in=_HANDLED).exists()
