"""Send dead letters back: lock them, write addressed outbox rows, or replace an edited one."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TypeVar

from django.db import connections, models, transaction
from django.db.models import Exists, F, OuterRef, Q
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_eventbus.conf import conf
from django_eventbus.dead_letters import audit
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.events.message import (
    REDRIVEN_AT,
    REDRIVEN_BY,
    REDRIVEN_COUNT,
    REDRIVEN_DEAD_LETTER,
    REDRIVEN_TRIES,
    RETRY_COUNT,
    SUBSCRIPTION,
    Message,
)
from django_eventbus.events.text import storable
from django_eventbus.exceptions import BadEdit
from django_eventbus.models import DeadLetter, InboxRecord, OutboxEvent, Plan
from django_eventbus.models.dead_letters import DeadLetterQuerySet
from django_eventbus.models.querysets import update_grouped
from django_eventbus.models.reasons import LetterReason, SkipReason, UnansweredReason
from django_eventbus.observability.tracing.spans import redriven
from django_eventbus.outbox.outbox_rows import addressed_row
from django_eventbus.redrive.edited_message import Edit, edited_message, is_unchanged, patched
from django_eventbus.signals import announce, event_redriven

Row = TypeVar("Row", bound=models.Model)
#: A reason, and its detail.
WhySkipped = tuple[LetterReason, str]
UNCHANGED = gettext_lazy(
    "Nothing was changed. To send it as it was, under its own id, re-drive it."
)


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What came of those that a plan wanted to change. Who is in neither may be changed later."""

    #: The id of the edited message, or "", by dead letter.
    done: dict[int, str] = field(default_factory=dict)
    #: Why nothing was done, and never will be, by dead letter.
    reasons: dict[int, WhySkipped] = field(default_factory=dict)


def skip_locked(rows: models.QuerySet[Row]) -> models.QuerySet[Row]:
    """Lock those of *rows* that nobody else has locked."""
    # A handler holds its dead letter for as long as it runs. The relay, which carries plans
    # out, must not wait for it: nothing else would be sent meanwhile.
    can_skip = connections[rows.db].features.has_select_for_update_skip_locked
    return rows.select_for_update(skip_locked=can_skip)


def lock_unchanged(
    expected: Mapping[int, int], found: DeadLetterQuerySet, states: Collection[str]
) -> tuple[list[DeadLetter], BatchResult]:
    """Lock and return those in their *expected* rounds and in *states*; say why the others are not."""
    locked = list(skip_locked(found))
    result = BatchResult(reasons=_reasons_of_missing(expected, found, locked))
    letters = []
    for letter in locked:
        if why := _why_not(letter, expected[letter.pk], states):
            result.reasons[letter.pk] = why
        else:
            letters.append(letter)
    return letters, result


def _reasons_of_missing(
    expected: Mapping[int, int], found: DeadLetterQuerySet, locked: list[DeadLetter]
) -> dict[int, WhySkipped]:
    """Say why those that could not be locked will not move; without a reason, they may later."""
    missing = expected.keys() - {letter.pk for letter in locked}
    if not missing:
        return {}
    others = {each.pk: each for each in found.filter(pk__in=missing)}
    reasons = dict.fromkeys(missing - others.keys(), (LetterReason.PRUNED, ""))
    for key, letter in others.items():
        # Known for good, though it is not locked: a round never comes again.
        if why := _why_not(letter, expected[key], DeadLetter.State.values):
            reasons[key] = why
    return reasons


def _why_not(letter: DeadLetter, expected_round: int, states: Collection[str]) -> WhySkipped | None:
    if letter.round != expected_round:
        by = letter.redriven_by
        return (LetterReason.REDRIVEN_BY if by else LetterReason.REDRIVEN), by
    if letter.state not in states:
        return LetterReason.CHANGED, letter.state
    return None


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
        letter_to_send = LetterToSend(letter=letter, message=letter.message())
        return bool(send_back([letter_to_send], by=by, using=using))


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterToSend:
    """A dead letter, locked by the caller, and what is to go out for it."""

    letter: DeadLetter
    message: Message

    @property
    def edited_id(self) -> str:
        """The id of an edited message, or ""."""
        return "" if self.message.id == self.letter.message_id else self.message.id


def redrive_batch(expected: Mapping[int, int], *, plan: Plan, using: str) -> BatchResult:
    """Re-drive those that are still in their *expected* rounds. In a transaction only."""
    found = DeadLetter.objects.using(using).filter(pk__in=list(expected)).order_by("pk")
    letters, result = lock_unchanged(expected, found, DeadLetter.REDRIVABLE)
    letters_to_send = []
    for letter in letters:
        try:
            letters_to_send.append(_letter_to_send(letter, plan))
        except BadEdit as error:
            result.reasons[letter.pk] = LetterReason.INVALID, str(error)
    gone = send_back(letters_to_send, by=plan.created_by, using=using, tries=plan.tries)
    result.done.update((each.letter.pk, each.edited_id) for each in gone)
    left = {each.letter.pk for each in letters_to_send} - result.done.keys()
    replaced = LetterReason.CHANGED, str(DeadLetter.State.REPLACED)
    result.reasons.update(dict.fromkeys(left, replaced))
    return result


def _letter_to_send(letter: DeadLetter, plan: Plan) -> LetterToSend:
    if plan.patch is None:
        return LetterToSend(letter=letter, message=letter.message())
    return LetterToSend(letter=letter, message=edited_message(letter, patched(letter, plan.patch)))


def send_back(
    letters_to_send: Iterable[LetterToSend], *, by: str, using: str, tries: int | None = None
) -> list[LetterToSend]:
    """
    Change the dead letters and write their outbox rows. In a transaction only.

    Return those that leave: not one whose edited message is out already.
    """
    listed = _without_replaced(list(letters_to_send), using)
    now = timezone.now()
    for each in listed:
        each.letter.set_redriving(by, now, replaced_by=each.edited_id)
    letters = [each.letter for each in listed]
    update_grouped(letters, DeadLetter.REDRIVEN_COLUMNS, using)
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


def _without_replaced(letters_to_send: list[LetterToSend], using: str) -> list[LetterToSend]:
    """Cancel former edited messages that are not out; leave the dead letters of the others alone."""
    former = {each.letter.replaced_by for each in letters_to_send} - {""}
    if not former:
        return letters_to_send
    rows = OutboxEvent.objects.using(using).filter(message_id__in=former)
    # Locked: a relay may be publishing one of them at this moment, and then both would run.
    states = list(rows.select_for_update().values_list("message_id", "state"))
    published = {key for key, state in states if state == OutboxEvent.State.PUBLISHED}
    rows.exclude(message_id__in=published).update(state=OutboxEvent.State.CANCELLED)
    leaving = [each for each in letters_to_send if each.letter.replaced_by not in published]
    _forget_replaced([each.letter.message_id for each in leaving if not each.edited_id], using)
    return leaving


def _forget_replaced(message_ids: list[str], using: str) -> None:
    """Let the inbox take again what it refused for the sake of an edited message."""
    records = InboxRecord.objects.using(using).filter(message_id__in=message_ids)
    refused = records.filter(skip_reason=SkipReason.REPLACED)
    refused.update(state=InboxRecord.State.PARKED, skip_reason="")


def _copy(letter_to_send: LetterToSend, tries: int | None) -> Message:
    letter = letter_to_send.letter
    changes: dict[str, object] = {
        RETRY_COUNT: 0,
        REDRIVEN_AT: timezone.now().isoformat(),
        REDRIVEN_BY: storable(letter.redriven_by, 255),
        REDRIVEN_COUNT: letter.round,
        REDRIVEN_DEAD_LETTER: letter.pk,
        REDRIVEN_TRIES: tries or conf.redrive.tries,
        **redriven(letter_to_send.message, letter.queue, letter.round),
    }
    if letter.subscription:
        changes[SUBSCRIPTION] = letter.subscription
    return letter_to_send.message.copy_for(letter.queue, **changes)


def mark_unanswered(using: str) -> int:
    """Open again, as unanswered, what was re-driven and not heard of for the TIMEOUT of REDRIVE."""
    silent = DeadLetter.objects.using(using).filter(
        state=DeadLetter.State.REDRIVING,
        redriven_at__lt=timezone.now() - timedelta(seconds=conf.redrive.timeout),
        # What replaces an edited one is answered under an id of its own.
        replaced_by="",
    )
    with transaction.atomic(using=using):
        ids = list(skip_locked(silent).values_list("pk", flat=True))
        return silent.filter(pk__any_of=ids).mark_unanswered(UnansweredReason.TIMEOUT)


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
            unanswered="",
        )
    )


def edit_and_redrive(
    letter_id: int, edit: Edit, *, by: str, reason: str, using: str, round: int | None = None
) -> str:
    """
    Send *edit* to the subscription that failed, under a new id, which is returned.

    The dead letter is kept, linked by replaced_by, and closed when the broker has confirmed.
    Raise BadEdit, with everything that is wrong, or if it is no longer the *round* that was seen.
    """
    with transaction.atomic(using=using):
        letters = DeadLetter.objects.using(using).select_for_update()
        letter = letters.redrivable().filter(pk=letter_id).first()
        if letter is None or (round is not None and letter.round != round):
            raise _gone()
        message = edited_message(letter, edit)
        if is_unchanged(letter, edit):
            raise BadEdit([str(UNCHANGED)])
        audit.record(
            "edit and re-drive",
            by=by,
            why=reason,
            selection=Selection.of_ids([letter_id]),
            using=using,
            count=1,
            outcome={"from": letter.message_id, "to": message.id},
        )
        if not send_back([LetterToSend(letter=letter, message=message)], by=by, using=using):
            raise _gone()
    return message.id


def _gone() -> BadEdit:
    return BadEdit([_("The dead letter is no longer open, or it was re-driven in the meantime.")])
