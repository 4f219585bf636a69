"""Send dead letters back to the queue that failed, and see what comes of it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from django.db import transaction
from django.db.models import Exists, F, OuterRef
from django.utils import timezone

from django_eventbus import audit
from django_eventbus.conf import conf
from django_eventbus.durations import label
from django_eventbus.edited_messages import edited_message, patched
from django_eventbus.exceptions import BadEdit
from django_eventbus.locked_letters import Moved, still_as_expected, without_waiting
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
from django_eventbus.models import DeadLetter, OutboxEvent, Plan
from django_eventbus.models.alike import save_alike
from django_eventbus.outbox import addressed_row
from django_eventbus.selections import Selection
from django_eventbus.sentences import gettext_noop as _
from django_eventbus.sentences import known
from django_eventbus.signals import announce, event_redriven
from django_eventbus.tracing.creating import redriven

_SILENT = known(_("Nothing was heard of it for %(time)s."))
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
        send_back([Departure(letter=letter, message=letter.message())], by=by, using=using)
    return True


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
    send_back(departures, by=plan.created_by, using=using, tries=plan.tries)
    moved.done.update((each.letter.pk, each.edited_id) for each in departures)
    return moved


def _departure(letter: DeadLetter, plan: Plan) -> Departure:
    if plan.patch is None:
        return Departure(letter=letter, message=letter.message())
    return Departure(letter=letter, message=edited_message(letter, patched(letter, plan.patch)))


def send_back(
    departures: Iterable[Departure], *, by: str, using: str, tries: int | None = None
) -> None:
    """Change the dead letters and write their outbox rows. In a transaction only."""
    listed = list(departures)
    _take_back_unsent([each.letter for each in listed], using)
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


def _take_back_unsent(letters: Iterable[DeadLetter], using: str) -> None:
    """Cancel edited messages that the broker did not take: published again, both would run."""
    former = [letter.replaced_by for letter in letters if letter.replaced_by]
    if former:
        rows = OutboxEvent.objects.using(using).filter(message_id__in=former)
        unsent = rows.exclude(state=OutboxEvent.State.PUBLISHED)
        unsent.update(state=OutboxEvent.State.CANCELLED)


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
    edited = DeadLetter.objects.using(using).filter(state=DeadLetter.State.REDRIVING)
    rows = OutboxEvent.objects.using(using).filter(message_id=OuterRef("replaced_by"))
    # Not "is published": such a row may have been pruned before anybody asked.
    unconfirmed = rows.exclude(state=OutboxEvent.State.PUBLISHED)
    return (
        edited.exclude(replaced_by="")
        .exclude(Exists(unconfirmed))
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
