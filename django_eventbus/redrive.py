"""Send dead letters back to the queue that failed, and see what comes of it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import partial

from django.db import transaction
from django.utils import timezone

from django_eventbus.conf import conf
from django_eventbus.durations import label
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
from django_eventbus.models import DeadLetter, OutboxEvent, RedrivePlan
from django_eventbus.outbox import address_again, addressed_row
from django_eventbus.signals import announce, event_redriven


def redrive(ids: Iterable[int], *, by: str, using: str) -> int:
    """Re-drive the open dead letters among *ids*, each once; return how many went out."""
    return sum(_redrive_one(each, by, using) for each in ids)


def _redrive_one(letter_id: int, by: str, using: str) -> bool:
    with transaction.atomic(using=using):
        letters = DeadLetter.objects.using(using).select_for_update()
        letter = letters.redrivable().filter(pk=letter_id).first()
        if letter is None:
            return False
        letter.redriving(by)
        sys.audit("eventbus.redrive.changed")
        address_again(
            _copy(letter),
            queue=letter.queue,
            subscription=letter.subscription,
            due_at=None,
            using=using,
        )
        sys.audit("eventbus.redrive.written")
        # Only then: the caller may have a transaction of its own, which may roll back.
        transaction.on_commit(
            partial(announce, event_redriven, DeadLetter, dead_letter=letter), using=using
        )
    return True


def redrive_together(
    expected: Mapping[int, int], *, plan: RedrivePlan, using: str
) -> tuple[dict[int, str], dict[int, str]]:
    """
    Re-drive the dead letters that are still in their *expected* rounds. In a transaction only.

    Return for each that went out the id of an edited message, or "", and for each that did not
    the reason.
    """
    found = DeadLetter.objects.using(using).filter(pk__in=list(expected))
    # In one order: two plans over the same dead letters would wait for each other for ever.
    letters = list(found.select_for_update().order_by("pk"))
    reasons = {letter.pk: why for letter in letters if (why := _why_not(letter, expected))}
    gone = expected.keys() - {letter.pk for letter in letters}
    reasons |= dict.fromkeys(gone, "its dead letter was pruned")
    moved = [letter for letter in letters if letter.pk not in reasons]
    _redrive_moved(moved, plan, using)
    return dict.fromkeys((letter.pk for letter in moved), ""), reasons


def _why_not(letter: DeadLetter, expected: Mapping[int, int]) -> str:
    if letter.round != expected[letter.pk]:
        return f"it was re-driven by {letter.redriven_by or 'somebody else'} meanwhile"
    if letter.state not in DeadLetter.REDRIVABLE:
        return f"it was {letter.get_state_display()} meanwhile"
    return ""


def _redrive_moved(letters: list[DeadLetter], plan: RedrivePlan, using: str) -> None:
    for letter in letters:
        letter.set_redriving(plan.created_by)
    DeadLetter.objects.using(using).bulk_update(letters, DeadLetter.REDRIVEN_COLUMNS)
    sys.audit("eventbus.redrive.changed")
    rows = [
        addressed_row(
            _copy(letter, **{REDRIVEN_TRIES: plan.tries}),
            queue=letter.queue,
            subscription=letter.subscription,
        )
        for letter in letters
    ]
    OutboxEvent.objects.using(using).bulk_create(rows)
    sys.audit("eventbus.redrive.written")
    for letter in letters:
        announcement = partial(announce, event_redriven, DeadLetter, dead_letter=letter)
        transaction.on_commit(announcement, using=using)


def _copy(letter: DeadLetter, **more: object) -> Message:
    changes: dict[str, object] = {
        RETRY_COUNT: 0,
        REDRIVEN_AT: timezone.now().isoformat(),
        REDRIVEN_BY: storable(letter.redriven_by, 255),
        REDRIVEN_COUNT: letter.round,
        REDRIVEN_DEAD_LETTER: letter.pk,
        **more,
    }
    if letter.subscription:
        changes[SUBSCRIPTION] = letter.subscription
    return letter.message().copy_for(letter.queue, **changes)


def give_up_waiting(using: str) -> int:
    """Open again, as unanswered, what was re-driven and not heard of for REDRIVE_TIMEOUT."""
    limit = conf.redrive_timeout
    silent = DeadLetter.objects.using(using).filter(
        state=DeadLetter.State.REDRIVING, redriven_at__lt=timezone.now() - timedelta(seconds=limit)
    )
    return silent.update(
        state=DeadLetter.State.UNKNOWN, note=f"Nothing was heard of it for {label(limit)}."
    )


def report_unsent(rows: Iterable[OutboxEvent], using: str) -> None:
    """Open again, as unanswered, the dead letters whose re-drive the broker did not take."""
    for row in rows:
        if letter_id := row.message().number(REDRIVEN_DEAD_LETTER):
            DeadLetter.objects.using(using).filter(
                pk=letter_id, state=DeadLetter.State.REDRIVING
            ).update(
                state=DeadLetter.State.UNKNOWN, note=f"It did not reach the queue {row.queue}."
            )
