"""Close dead letters of a selection, open them again, or put them out of sight, in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from django_eventbus import audit
from django_eventbus.dead_letters import DISCARDED, discarded
from django_eventbus.matching import freeze, letters_of
from django_eventbus.messages import storable
from django_eventbus.models import DeadLetter, InboxRecord
from django_eventbus.models.dead_letter import DeadLetterQuerySet
from django_eventbus.plans import require_reason
from django_eventbus.selections import Selection

_BATCH = 500
State = DeadLetter.State
#: The subscription and the message id.
Name = tuple[str, str]
#: Told after each batch how many are done so far.
Progress = Callable[[int], object]


def discard(ids: Iterable[int], *, reason: str, by: str, using: str) -> int:
    """Close open dead letters for good; a copy that still arrives is not run. Return how many."""
    chosen = list(ids)
    if not chosen:
        return 0
    return discard_selected(Selection.of_ids(chosen), by=by, reason=reason, using=using)


def discard_selected(
    selection: Selection,
    *,
    by: str,
    reason: str,
    using: str,
    limit: int | None = None,
    on_batch: Progress = lambda done: None,
) -> int:
    """Close what can be re-driven of *selection*, as it is now, for good; return how many."""
    chosen = freeze(selection, using)
    letters = letters_of(chosen, using).redrivable()
    count = letters.order_by()[:limit].count()
    require_reason(reason, count)
    if not count:
        return 0
    note = partial(audit.record, by=by, why=reason, selection=chosen, using=using)
    # First: never a discard that the audit does not know.
    note("discard", count=count)
    done = 0
    for ids in _batches(letters, limit):
        done += _discard_batch(ids, reason, by, using)
        on_batch(done)
    note("discarded", count=done, outcome=_outcome(done, count))
    return done


def restore_selected(selection: Selection, *, by: str, reason: str, using: str) -> int:
    """Open discarded dead letters of *selection* again; return how many."""
    chosen = freeze(selection, using)
    letters = letters_of(chosen, using).filter(state=State.DISCARDED)
    count = letters.count()
    if not count:
        return 0
    note = partial(audit.record, by=by, why=reason, selection=chosen, using=using)
    note("restore", count=count)
    done = sum(_restore_batch(ids, using) for ids in _batches(letters, None))
    note("restored", count=done, outcome=_outcome(done, count))
    return done


def _outcome(done: int, count: int) -> dict[str, int]:
    """Return what came of it: others may have been at the same dead letters meanwhile."""
    return {"changed": done, "left": max(0, count - done)}


def ignore_selected(
    selection: Selection, until: datetime | None, *, by: str, reason: str, using: str
) -> int:
    """Put what waits of *selection* out of sight until then; None: show it again."""
    chosen = freeze(selection, using)
    letters = letters_of(chosen, using).filter(state__in=DeadLetter.WAITING)
    facts = {"until": until.isoformat() if until else ""}
    with transaction.atomic(using=using):
        count = letters.update(ignored_until=until)
        audit.record(
            "ignore", by=by, why=reason, selection=chosen, using=using, count=count, outcome=facts
        )
    return count


def _batches(letters: DeadLetterQuerySet, limit: int | None) -> Iterator[list[int]]:
    """Yield ids, the oldest first; by place, since those that are done drop out."""
    last, left = 0, limit
    while left is None or left > 0:
        size = _BATCH if left is None else min(_BATCH, left)
        ids = letters.filter(pk__gt=last).order_by("pk").values_list("pk", flat=True)[:size]
        batch = list(ids)
        if not batch:
            return
        yield batch
        last, left = batch[-1], None if left is None else left - len(batch)


def _discard_batch(ids: list[int], reason: str, by: str, using: str) -> int:
    now = timezone.now()
    with transaction.atomic(using=using):
        letters = DeadLetter.objects.using(using).filter(pk__any_of=ids)
        records = _locked_records(letters, using)
        chosen = _locked_letters(letters.redrivable())
        # What was handled stays that: once restored, it would be run again.
        _records_of(chosen, records, using).exclude(state=InboxRecord.State.HANDLED).update(
            state=InboxRecord.State.SKIPPED,
            error=discarded(reason),
            settled_at=now,
            delay=None,
            due_at=None,
        )
        return letters.filter(pk__any_of=list(chosen)).update(
            state=State.DISCARDED,
            closed_at=now,
            closed_by=storable(by, 255),
            note=storable(reason, 2000),
        )


def _restore_batch(ids: list[int], using: str) -> int:
    with transaction.atomic(using=using):
        letters = DeadLetter.objects.using(using).filter(pk__any_of=ids)
        records = _locked_records(letters, using)
        chosen = _locked_letters(letters.filter(state=State.DISCARDED))
        # Else the inbox would take a re-drive for one that was settled.
        discarded = _records_of(chosen, records, using).filter(error__startswith=DISCARDED)
        discarded.update(state=InboxRecord.State.PARKED, settled_at=timezone.now())
        return letters.filter(pk__any_of=list(chosen)).update(
            state=State.OPEN, closed_at=None, closed_by="", note=""
        )


def _locked_records(letters: DeadLetterQuerySet, using: str) -> dict[Name, int]:
    # Before the letters are locked, as the consumer does: the other order can deadlock.
    ids = list(letters.values_list("message_id", flat=True))
    records = InboxRecord.objects.using(using).filter(message_id__in=ids).order_by("pk")
    found = records.select_for_update().values_list("subscription", "message_id", "pk")
    return {(subscription, message_id): pk for subscription, message_id, pk in found}


def _locked_letters(letters: DeadLetterQuerySet) -> dict[int, Name]:
    found = letters.order_by("pk").select_for_update()
    names = found.values_list("pk", "subscription", "message_id")
    return {pk: (subscription, message_id) for pk, subscription, message_id in names}


def _records_of(
    letters: dict[int, Name], records: dict[Name, int], using: str
) -> QuerySet[InboxRecord]:
    keys = [records[name] for name in letters.values() if name in records]
    return InboxRecord.objects.using(using).filter(pk__any_of=keys)
