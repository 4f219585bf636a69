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
from django_eventbus.outbox.relay import hold_shards
from django_eventbus.redrive.edited_message import Edit, edited_message, is_unchanged, patched
from django_eventbus.signals import announce, event_redriven

Row = TypeVar("Row", bound=models.Model)
#: A reason, and its detail.
ReasonAndDetail = tuple[LetterReason, str]
UNCHANGED = gettext_lazy(
    "Nothing was changed. To send the message unchanged and under its own id, re-drive it."
)


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of a batch. A dead letter that is in neither dict can be changed later."""

    #: By dead letter that was changed: the id of the edited message, or "".
    done: dict[int, str] = field(default_factory=dict)
    #: By dead letter that the plan can never change: the reason.
    reasons: dict[int, ReasonAndDetail] = field(default_factory=dict)


def skip_locked(rows: models.QuerySet[Row]) -> models.QuerySet[Row]:
    """Lock the *rows* that no other transaction has locked, and skip the others."""
    # A handler locks its dead letter while it runs. The relay, which runs the plans, must not
    # wait for it, because it would not send anything else during that time.
    can_skip = connections[rows.db].features.has_select_for_update_skip_locked
    return rows.select_for_update(skip_locked=can_skip)


def lock_unchanged(
    expected: Mapping[int, int], found: DeadLetterQuerySet, states: Collection[str]
) -> tuple[list[DeadLetter], BatchResult]:
    """Lock and return those in their *expected* rounds and in *states*, with reasons for others."""
    locked = list(skip_locked(found))
    result = BatchResult(reasons=_reasons_of_missing(expected, found, locked))
    letters = []
    for letter in locked:
        if reason := _skip_reason(letter, expected[letter.pk], states):
            result.reasons[letter.pk] = reason
        else:
            letters.append(letter)
    return letters, result


def _reasons_of_missing(
    expected: Mapping[int, int], found: DeadLetterQuerySet, locked: list[DeadLetter]
) -> dict[int, ReasonAndDetail]:
    """Return the reasons for those that were not locked and can never be changed by the plan."""
    missing = expected.keys() - {letter.pk for letter in locked}
    if not missing:
        return {}
    others = {each.pk: each for each in found.filter(pk__in=missing)}
    reasons = dict.fromkeys(missing - others.keys(), (LetterReason.PRUNED, ""))
    for key, letter in others.items():
        # This is final even without a lock, because a round never decreases.
        if reason := _skip_reason(letter, expected[key], DeadLetter.State.values):
            reasons[key] = reason
    return reasons


def _skip_reason(
    letter: DeadLetter, expected_round: int, states: Collection[str]
) -> ReasonAndDetail | None:
    if letter.round != expected_round:
        by = letter.redriven_by
        return (LetterReason.REDRIVEN_BY if by else LetterReason.REDRIVEN), by
    if letter.state not in states:
        return LetterReason.CHANGED, letter.state
    return None


def redrive(ids: Iterable[int], *, by: str, using: str) -> int:
    """Re-drive the open dead letters among *ids*, each once; return the number that was sent."""
    chosen = list(ids)
    if not chosen:
        return 0
    note = partial(audit.record, by=by, selection=Selection.of_ids(chosen), using=using)
    # Write the audit first, so that there is no re-drive without an entry.
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
    """A dead letter that the caller has locked, and the message to send for it."""

    letter: DeadLetter
    message: Message

    @property
    def edited_id(self) -> str:
        """The id of an edited message, or ""."""
        return "" if self.message.id == self.letter.message_id else self.message.id


def redrive_batch(expected: Mapping[int, int], *, plan: Plan, using: str) -> BatchResult:
    """Re-drive dead letters that are still in their *expected* rounds. In a transaction only."""
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

    Return those that are sent. A dead letter whose edited message was published is not.
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
        # On commit, because an outer transaction of the caller may roll back.
        announcement = partial(announce, event_redriven, DeadLetter, dead_letter=letter)
        transaction.on_commit(announcement, using=using)
    return listed


def _without_replaced(letters_to_send: list[LetterToSend], using: str) -> list[LetterToSend]:
    """Cancel earlier edited messages; omit dead letters whose edited message was published."""
    former = {each.letter.replaced_by for each in letters_to_send} - {""}
    if not former:
        return letters_to_send
    rows = OutboxEvent.objects.using(using).filter(message_id__in=former)
    # If a relay is publishing one of them now, both messages would run.
    if not hold_shards(rows.values_list("shard", flat=True), using):
        return [each for each in letters_to_send if not each.letter.replaced_by]
    states = list(rows.values_list("message_id", "state"))
    published = {key for key, state in states if state == OutboxEvent.State.PUBLISHED}
    rows.exclude(message_id__in=published).update(state=OutboxEvent.State.CANCELLED)
    leaving = [each for each in letters_to_send if each.letter.replaced_by not in published]
    _forget_replaced([each.letter.message_id for each in leaving if not each.edited_id], using)
    return leaving


def _forget_replaced(message_ids: list[str], using: str) -> None:
    """Let the inbox accept messages again that it skips because they were replaced."""
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
    """Mark dead letters as unanswered if their re-drive has no outcome after TIMEOUT of REDRIVE."""
    silent = DeadLetter.objects.using(using).filter(
        state=DeadLetter.State.REDRIVING,
        redriven_at__lt=timezone.now() - timedelta(seconds=conf.redrive.timeout),
        # The outcome of an edited message is recorded under its own id.
        replaced_by="",
    )
    with transaction.atomic(using=using):
        ids = list(skip_locked(silent).values_list("pk", flat=True))
        return silent.filter(pk__any_of=ids).mark_unanswered(UnansweredReason.TIMEOUT)


def close_replaced(using: str) -> int:
    """Close the dead letters whose edited messages the broker has confirmed."""
    rows = OutboxEvent.objects.using(using).filter(message_id=OuterRef("replaced_by"))
    is_published = Q(state=OutboxEvent.State.PUBLISHED)
    # Not Exists(published row): the row may have been pruned.
    is_sent = Q(~Exists(rows.exclude(is_published)), state=DeadLetter.State.REDRIVING)
    # The broker did not accept the message at first, and a person published it again.
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
    Send *edit* to the subscription that failed, and return the new id of the message.

    The dead letter has the new id in replaced_by. It is closed when the broker has confirmed.
    Raise BadEdit with all problems, or if the dead letter is not in *round* any more.
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
