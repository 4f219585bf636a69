"""Send dead letters back to the queue that failed, and see what comes of it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
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
    RETRY_COUNT,
    SUBSCRIPTION,
    Message,
    storable,
)
from django_eventbus.models import DeadLetter, OutboxEvent
from django_eventbus.outbox import address_again
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


def _copy(letter: DeadLetter) -> Message:
    changes: dict[str, object] = {
        RETRY_COUNT: 0,
        REDRIVEN_AT: timezone.now().isoformat(),
        REDRIVEN_BY: storable(letter.redriven_by, 255),
        REDRIVEN_COUNT: letter.round,
        REDRIVEN_DEAD_LETTER: letter.pk,
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
