"""Send dead letters back to the queue that failed, and see what comes of it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q
from django.utils import timezone

from django_eventbus import audit
from django_eventbus.conf import conf
from django_eventbus.dead_letters import REPLACED
from django_eventbus.durations import label
from django_eventbus.edited_messages import edited_message, patched
from django_eventbus.exceptions import BadEdit
from django_eventbus.locked_letters import CHANGED, Moved, still_as_expected, without_waiting
from django_eventbus.messages import (
    REDRIVEN_AT,
    REDRIVEN_BY,
    REDRIVEN_COUNT,
    REDRIVEN_DEAD_LETTER,
    REDRIVEN_TRIES,
    RETRY_COUNT,
    SUBSCRIPTION,
    Message,
    storable,
)
from django_eventbus.models import DeadLetter, InboxRecord, OutboxEvent, Plan
from django_eventbus.models.alike import save_alike
from django_eventbus.outbox import addressed_row
from django_eventbus.selections import Selection
from django_eventbus.sentences import english, known
from django_eventbus.sentences import gettext_noop as _
from django_eventbus.signals import announce, event_redriven
from django_eventbus.tracing.creating import redriven

_SILENT = known(_("Nothing was heard of it for %(time)s."))
_REPLACED = CHANGED % {"state": english(DeadLetter.State.REPLACED.label)}
_UNSENT = known(_("It did not reach the queue %(queue)s."))


def redrive(ids: Iterable[int], *, by: str, using: str) -> int:
    """Re-drive the open dead letters among *ids*, each once; return how many went out."""
    chosen = list(ids)
    if not chosen:
        return 0
    note = partial(audit.record, by=by, selection=Selection.of_ids(chosen), using=using)
    # First: never a re-drive that the audit does not know.
    note("redrive", count=len(chosen))
    sent = sum(_redrive_one(each, by, using) for each in chosen)
    note("redrove", count=sent, outcome={"sent": sent, "left": len(chosen) - sent})
    return sent


def _redrive_one(letter_id: int, by: str, using: str) -> bool:
    with transaction.atomic(using=using):
        letters = DeadLetter.objects.using(using).select_for_update()
        letter = letters.redrivable().filter(pk=letter_id).first()
        if letter is None:
            return False
        departure = Departure(letter=letter, message=letter.message())
        return bool(send_back([departure], by=by, using=using))


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """A dead letter, locked by the caller, and what is to go out for it."""

    letter: DeadLetter
    message: Message

    @property
    def edited_id(self) -> str:
        """The id of an edited message, or ""."""
        return "" if self.message.id == self.letter.message_id else self.message.id


def redrive_together(expected: Mapping[int, int], *, plan: Plan, using: str) -> Moved:
    """Re-drive those that are still in their *expected* rounds. In a transaction only."""
    found = DeadLetter.objects.using(using).filter(pk__in=list(expected)).order_by("pk")
    letters, moved = still_as_expected(expected, found, DeadLetter.REDRIVABLE)
    departures = []
    for letter in letters:
        try:
            departures.append(_departure(letter, plan))
        except BadEdit as error:
            moved.reasons[letter.pk] = str(error)
    gone = send_back(departures, by=plan.created_by, using=using, tries=plan.tries)
    moved.done.update((each.letter.pk, each.edited_id) for each in gone)
    left = {each.letter.pk for each in departures} - moved.done.keys()
    moved.reasons.update(dict.fromkeys(left, _REPLACED))
    return moved


def _departure(letter: DeadLetter, plan: Plan) -> Departure:
    if plan.patch is None:
        return Departure(letter=letter, message=letter.message())
    return Departure(letter=letter, message=edited_message(letter, patched(letter, plan.patch)))


def send_back(
    departures: Iterable[Departure], *, by: str, using: str, tries: int | None = None
) -> list[Departure]:
    """
    Change the dead letters and write their outbox rows. In a transaction only.

    Return those that leave: not one whose edited message is out already.
    """
    listed = _without_replaced(list(departures), using)
    now = timezone.now()
    for each in listed:
        each.letter.set_redriving(by, now, replaced_by=each.edited_id)
    letters = [each.letter for each in listed]
    save_alike(letters, DeadLetter.REDRIVEN_COLUMNS, using)
    sys.audit("eventbus.redrive.changed")
    rows = [
        addressed_row(
            _copy(each, tries), queue=each.letter.queue, subscription=each.letter.subscription
        )
        for each in listed
    ]
    OutboxEvent.objects.using(using).bulk_create(rows)
    sys.audit("eventbus.redrive.written")
    for letter in letters:
        # Only then: the caller may have a transaction of its own, which may roll back.
        announcement = partial(announce, event_redriven, DeadLetter, dead_letter=letter)
        transaction.on_commit(announcement, using=using)
    return listed


def _without_replaced(departures: list[Departure], using: str) -> list[Departure]:
    """Cancel former edited messages that are not out; leave the dead letters of the others alone."""
    former = {each.letter.replaced_by for each in departures} - {""}
    if not former:
        return departures
    rows = OutboxEvent.objects.using(using).filter(message_id__in=former)
    # Locked: a relay may be publishing one of them at this moment, and then both would run.
    states = list(rows.select_for_update().values_list("message_id", "state"))
    published = {key for key, state in states if state == OutboxEvent.State.PUBLISHED}
    rows.exclude(message_id__in=published).update(state=OutboxEvent.State.CANCELLED)
    leaving = [each for each in departures if each.letter.replaced_by not in published]
    _forget_replaced([each.letter.message_id for each in leaving if not each.edited_id], using)
    return leaving


def _forget_replaced(message_ids: list[str], using: str) -> None:
    """Let the inbox take again what it refused for the sake of an edited message."""
    records = InboxRecord.objects.using(using).filter(message_id__in=message_ids)
    refused = records.filter(state=InboxRecord.State.SKIPPED, error__startswith=REPLACED)
    refused.update(state=InboxRecord.State.PARKED)


def _copy(departure: Departure, tries: int | None) -> Message:
    letter = departure.letter
    changes: dict[str, object] = {
        RETRY_COUNT: 0,
        REDRIVEN_AT: timezone.now().isoformat(),
        REDRIVEN_BY: storable(letter.redriven_by, 255),
        REDRIVEN_COUNT: letter.round,
        REDRIVEN_DEAD_LETTER: letter.pk,
        REDRIVEN_TRIES: tries or conf.redrive_tries,
        **redriven(departure.message, letter.queue, letter.round),
    }
    if letter.subscription:
        changes[SUBSCRIPTION] = letter.subscription
    return departure.message.copy_for(letter.queue, **changes)


def give_up_waiting(using: str) -> int:
    """Open again, as unanswered, what was re-driven and not heard of for REDRIVE_TIMEOUT."""
    limit = conf.redrive_timeout
    silent = DeadLetter.objects.using(using).filter(
        state=DeadLetter.State.REDRIVING,
        redriven_at__lt=timezone.now() - timedelta(seconds=limit),
        # What replaces an edited one is answered under an id of its own.
        replaced_by="",
    )
    with transaction.atomic(using=using):
        ids = list(without_waiting(silent).values_list("pk", flat=True))
        note = _SILENT % {"time": label(limit)}
        return silent.filter(pk__any_of=ids).update(state=DeadLetter.State.UNKNOWN, note=note)


def close_replaced(using: str) -> int:
    """Close the dead letters whose edited messages the broker has confirmed."""
    rows = OutboxEvent.objects.using(using).filter(message_id=OuterRef("replaced_by"))
    is_published = Q(state=OutboxEvent.State.PUBLISHED)
    # Not "is published": such a row may have been pruned before anybody asked.
    is_sent = Q(~Exists(rows.exclude(is_published)), state=DeadLetter.State.REDRIVING)
    # The broker did not take it at first, and a person has published it again.
    is_sent_late = Q(Exists(rows.filter(is_published)), state=DeadLetter.State.UNKNOWN)
    edited = DeadLetter.objects.using(using).filter(state__in=DeadLetter.AWAITED)
    return (
        edited.exclude(replaced_by="")
        .filter(is_sent | is_sent_late)
        .update(
            state=DeadLetter.State.REPLACED,
            closed_at=timezone.now(),
            closed_by=F("redriven_by"),
        )
    )


def report_unsent(rows: Iterable[OutboxEvent], using: str) -> None:
    """Open again, as unanswered, the dead letters whose re-drive the broker did not take."""
    for row in rows:
        if letter_id := row.message().number(REDRIVEN_DEAD_LETTER):
            DeadLetter.objects.using(using).filter(
                pk=letter_id, state=DeadLetter.State.REDRIVING
            ).update(
                state=DeadLetter.State.UNKNOWN,
                note=_UNSENT % {"queue": row.queue},
            )
