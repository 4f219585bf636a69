"""The pace of a plan, its outcomes so far, and when to pause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import floor
from typing import Protocol

from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.utils import timezone

from django_eventbus.conf import conf
from django_eventbus.durations import label
from django_eventbus.models import DeadLetter, InboxRecord, Plan, PlannedLetter
from django_eventbus.models.reasons import LetterReason, UnansweredReason

#: A worker that is late may use the rate of this many seconds at once.
_BURST = 2.0

#: The minimum number of outcomes for a meaningful percentage.
_FEWEST = 10

_BATCH = 1_000
#: The new state of a planned letter, the reason and its detail.
LetterOutcome = tuple[str, str, str]
State = PlannedLetter.State


class Paced(Protocol):
    """The fields of a plan that its rate needs."""

    #: None means no limit.
    rate: float | None
    paced_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """The latest outcomes of a plan."""

    failed: int
    total: int

    @classmethod
    def of(cls, states: Iterable[str]) -> Outcomes:
        counts = Counter(states)
        # Skipped ones were not tried. Ones without an outcome count as failed.
        failed = counts["failed"] + counts["unknown"]
        return cls(failed=failed, total=failed + counts["healed"])


def is_failing(outcomes: Outcomes, percent: int, *, is_complete: bool) -> bool:
    """Whether more than *percent* failed; False while there are too few and more will come."""
    if not outcomes.total or (outcomes.total < _FEWEST and not is_complete):
        return False
    return outcomes.failed * 100 > percent * outcomes.total


def allowance(plan: Paced, now: datetime, most: int) -> tuple[int, datetime]:
    """Return how many may be processed now, and the time until which they use the rate."""
    if plan.rate is None:
        return most, now
    earliest = now - timedelta(seconds=max(_BURST, 1 / plan.rate))
    since = max(plan.paced_at or earliest, earliest)
    # The small addition corrects rounding errors of floats.
    number = max(0, floor(min((now - since).total_seconds() * plan.rate + 1e-6, most)))
    return number, since + timedelta(seconds=number / plan.rate)


def known_outcomes(plan: Plan, using: str) -> Iterator[tuple[PlannedLetter, LetterOutcome]]:
    """Yield the re-drives of the plan that have a new outcome, with the outcome."""
    sent = PlannedLetter.objects.using(using).filter(plan=plan, state=State.SENT)
    yield from _same_message(sent.filter(sent_as=""), using)
    if plan.patch is not None:
        yield from _edited(sent.exclude(sent_as=""), using)


def _same_message(
    sent: QuerySet[PlannedLetter], using: str
) -> Iterator[tuple[PlannedLetter, LetterOutcome]]:
    awaited = Q(dead_letter__state=DeadLetter.State.REDRIVING, dead_letter__round=F("round") + 1)
    # This join omits dead letters that were pruned, which the last loop handles.
    answered = sent.filter(dead_letter__pk__isnull=False).exclude(awaited)
    columns = ("id", "state", "round", "error_type", "unanswered")
    names = ("id", "round", "plan_id", *(f"dead_letter__{name}" for name in columns))
    for row in answered.select_related("dead_letter").only(*names)[:_BATCH]:
        yield row, outcome_of(row, row.dead_letter)
    letters = DeadLetter.objects.using(using).filter(pk=OuterRef("dead_letter_id"))
    for row in sent.exclude(Exists(letters))[:_BATCH]:
        yield row, (State.UNKNOWN, LetterReason.PRUNED, "")


def outcome_of(row: PlannedLetter, letter: DeadLetter) -> LetterOutcome:
    """Return the outcome of a planned re-drive whose dead letter is no longer re-driving."""
    if letter.round > row.round + 1:
        return State.FAILED, LetterReason.REDRIVEN_AGAIN, ""
    match letter.state:
        case DeadLetter.State.HEALED:
            return State.HEALED, "", ""
        case DeadLetter.State.OPEN:
            return State.FAILED, LetterReason.ERROR, letter.error_type
        case DeadLetter.State.UNKNOWN if letter.unanswered == UnansweredReason.UNSENT:
            return State.UNKNOWN, LetterReason.UNSENT, ""
        case DeadLetter.State.UNKNOWN:
            return _timed_out()
    return State.SKIPPED, LetterReason.CHANGED, letter.state


def _timed_out() -> LetterOutcome:
    return State.UNKNOWN, LetterReason.TIMEOUT, label(conf.redrive.timeout)


def _edited(
    sent: QuerySet[PlannedLetter], using: str
) -> Iterator[tuple[PlannedLetter, LetterOutcome]]:
    """Search for edited messages by their own ids."""
    rows = list(sent.order_by("pk")[:_BATCH])
    ids = [row.sent_as for row in rows]
    letters = DeadLetter.objects.using(using)
    failed = dict(letters.filter(message_id__in=ids).values_list("message_id", "error_type"))
    final = (InboxRecord.State.HANDLED, InboxRecord.State.SKIPPED)
    records = InboxRecord.objects.using(using).filter(message_id__in=ids, state__in=final)
    handled = set(records.values_list("message_id", flat=True))
    originals = [row.dead_letter_id for row in rows]
    unsent = letters.filter(pk__in=originals, state=DeadLetter.State.UNKNOWN)
    unsent_ids = set(unsent.values_list("pk", flat=True))
    limit = timezone.now() - timedelta(seconds=conf.redrive.timeout)
    for row in rows:
        if row.sent_as in failed:
            yield row, (State.FAILED, LetterReason.ERROR, failed[row.sent_as])
        elif row.sent_as in handled:
            yield row, (State.HEALED, "", "")
        elif row.dead_letter_id in unsent_ids:
            yield row, (State.UNKNOWN, LetterReason.UNSENT, "")
        elif row.sent_at and row.sent_at < limit:
            yield row, _timed_out()
