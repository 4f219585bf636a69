"""Close dead letters, or open them again, together with what the inbox says of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from django.db.models import QuerySet
from django.utils import timezone

from django_eventbus.dead_letters import DISCARDED, discarded
from django_eventbus.locked_letters import Moved, still_as_expected, without_waiting
from django_eventbus.messages import storable
from django_eventbus.models import DeadLetter, InboxRecord, Plan
from django_eventbus.models.dead_letter import DeadLetterQuerySet

State = DeadLetter.State
#: The subscription and the message id.
Name = tuple[str, str]
#: Without body, payload and traceback.
_COLUMNS = ("id", "subscription", "message_id", "state", "round", "redriven_by")


def discard_together(expected: Mapping[int, int], *, plan: Plan, using: str) -> Moved:
    """Close those that are still in their *expected* rounds. In a transaction only."""
    letters, records, moved = _locked(expected, DeadLetter.REDRIVABLE, using)
    now = timezone.now()
    # What was handled stays that: once restored, it would be run again.
    records.exclude(state=InboxRecord.State.HANDLED).update(
        state=InboxRecord.State.SKIPPED,
        error=discarded(plan.reason),
        settled_at=now,
        delay=None,
        due_at=None,
    )
    letters.update(
        state=State.DISCARDED,
        closed_at=now,
        closed_by=storable(plan.created_by, 255),
        note=storable(plan.reason, 2000),
    )
    return moved


def restore_together(expected: Mapping[int, int], *, plan: Plan, using: str) -> Moved:
    """Open again those that are still discarded. In a transaction only."""
    letters, records, moved = _locked(expected, (State.DISCARDED,), using)
    # Else the inbox would take a re-drive for one that was settled.
    by_discard = records.filter(error__startswith=DISCARDED)
    by_discard.update(state=InboxRecord.State.PARKED, settled_at=timezone.now())
    letters.update(state=State.OPEN, closed_at=None, closed_by="", note="")
    return moved


def _locked(
    expected: Mapping[int, int], states: Collection[str], using: str
) -> tuple[DeadLetterQuerySet, QuerySet[InboxRecord], Moved]:
    """Return the dead letters that may change now, their records, and what came of the others."""
    letters = DeadLetter.objects.using(using)
    found = letters.filter(pk__any_of=list(expected)).order_by("pk")
    # Before the letters, as the consumer does: the other order can deadlock.
    records, busy = _locked_records(found, using)
    chosen, moved = still_as_expected(expected, found.only(*_COLUMNS), states)
    names = {each.pk: (each.subscription, each.message_id) for each in chosen}
    free = {key: name for key, name in names.items() if name not in busy}
    moved.done.update(dict.fromkeys(free, ""))
    keys = [records[name] for name in free.values() if name in records]
    mine = InboxRecord.objects.using(using).filter(pk__any_of=keys)
    return letters.filter(pk__any_of=list(free)), mine, moved


def _locked_records(found: DeadLetterQuerySet, using: str) -> tuple[dict[Name, int], set[Name]]:
    """Return the records of *found* by name, and the names of those that a handler holds now."""
    ids = list(found.values_list("message_id", flat=True))
    records = InboxRecord.objects.using(using).filter(message_id__in=ids).order_by("pk")
    names = {
        (subscription, message_id): key
        for subscription, message_id, key in records.values_list("subscription", "message_id", "pk")
    }
    free = set(without_waiting(records).values_list("pk", flat=True))
    return names, {name for name, key in names.items() if key not in free}
