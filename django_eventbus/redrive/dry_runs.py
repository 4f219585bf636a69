"""Predict what a re-drive would do, without moving anything."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Count, Exists, Max, Min, OuterRef, Q

from django_eventbus.conf import conf
from django_eventbus.dead_letters.query import freeze, matching
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.events.formats import read
from django_eventbus.exceptions import Unreadable
from django_eventbus.models import DeadLetter, InboxMark, InboxRecord, Plan, PlannedLetter
from django_eventbus.models.dead_letters import DeadLetterQuerySet
from django_eventbus.redrive.edited_message import (
    merged,
    problems_with,
    require_storable,
    unsendable,
)
from django_eventbus.subscriptions.subscription import Subscription, registry

#: Up to this number, a dry run reads every dead letter.
ALL = 2_000

#: Of more dead letters, it reads about this number, in PLACES ranges that start at random ids.
SAMPLE = 1_000
PLACES = 25

#: The share of SAMPLE that the random ranges must contain.
ENOUGH = 0.25
_EXAMPLES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A queue and a subscription to which a part of the selection would be sent."""

    queue: str
    subscription: str
    type: str
    count: int

    @property
    def is_queue_here(self) -> bool:
        """Whether this project has the queue."""
        return self.queue in registry.queues()

    @property
    def has_subscription(self) -> bool:
        """Whether this project has a subscription for it."""
        if self.subscription:
            return registry.named(self.subscription) is not None
        return any(self._matches(each) for each in registry.on_queue(self.queue))

    def _matches(self, subscription: Subscription) -> bool:
        return subscription.matches_type(self.type)


@dataclass(slots=True, kw_only=True)
class Forecast:
    """The predicted result of a re-drive of a frozen selection."""

    selection: Selection
    targets: list[Target]
    #: The dead letters of the selection that cannot be re-driven, by state.
    staying: dict[str, int]
    #: The number of dead letters that were read. The numbers below are of these.
    looked_at: int = 0
    already_handled: int = 0
    #: Dead letters that may have been handled, but whose inbox records were pruned. They would run.
    forgotten: int = 0
    invalid: int = 0
    #: The number of invalid ones by queue, subscription and type.
    invalid_by_target: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    #: Dead letters that another plan is going to re-drive or close.
    planned: int = 0
    #: The ids of some dead letters with an invalid payload, and the problems of each.
    problems: list[tuple[int, list[str]]] = field(default_factory=list)
    #: The id of a dead letter with a valid payload, or else of any.
    sample: int | None = None

    @property
    def count(self) -> int:
        return sum(target.count for target in self.targets)

    @property
    def without_subscription(self) -> int:
        return sum(each.count for each in self.targets if not each.has_subscription)

    @property
    def without_queue(self) -> int:
        return sum(each.count for each in self.targets if not each.is_queue_here)

    def invalid_of(self, target: Target) -> int:
        """Return the number of invalid payloads that were found for *target*."""
        return self.invalid_by_target[target.queue, target.subscription, target.type]

    @property
    def is_sampled(self) -> bool:
        return self.looked_at < self.count

    def scaled(self, found: int) -> int:
        """Estimate the number in the whole selection from the number *found* in the sample."""
        return round(found * self.count / self.looked_at) if self.looked_at else 0


def dry_run(
    selection: Selection,
    *,
    using: str,
    change: Callable[[Any], Any] = lambda payload: payload,
    limit: int | None = None,
) -> Forecast:
    """
    Predict what a re-drive of *selection* would do after *change* was applied to each payload.

    With a *limit*, only for the dead letters that were parked first, as in a plan.
    """
    chosen = freeze(selection, using)
    letters = matching(chosen, using)
    going = letters.redrivable()
    if limit is not None:
        going = parked_first(going, limit)
    forecast = Forecast(
        selection=chosen,
        targets=targets_of(going),
        staying=staying_of(letters, DeadLetter.REDRIVABLE),
    )
    # With a limit, use the lowest and highest id of these dead letters only: most random ids of
    # the whole table would be beyond them.
    among = DeadLetter.objects.using(using) if limit is None else going
    ids = _ids_to_look_at(going, forecast.count, among)
    forecast.looked_at = len(ids)
    _add_inbox_counts(forecast, ids, using)
    _add_plan_counts(forecast, ids, using)
    _add_payload_problems(forecast, ids, using, change)
    return forecast


def parked_first(letters: DeadLetterQuerySet, limit: int) -> DeadLetterQuerySet:
    """Return the first *limit* of *letters*, by a condition and not by a slice."""
    places = letters.order_by("parked_at", "pk").values_list("parked_at", "pk")
    last = places[limit - 1 : limit].first()
    if last is None:
        return letters
    parked_at, key = last
    earlier = letters.filter(parked_at__lte=parked_at)
    return earlier.filter(Q(parked_at__lt=parked_at) | Q(pk__lte=key))


def targets_of(letters: DeadLetterQuerySet) -> list[Target]:
    """Count *letters* by their target, the largest number first."""
    names = ("queue", "subscription", "type")
    counts = letters.order_by().values_list(*names).annotate(count=Count("pk"))
    return [
        Target(queue=queue, subscription=subscription, type=kind, count=count)
        for queue, subscription, kind, count in counts.order_by("-count", *names)
    ]


def staying_of(letters: DeadLetterQuerySet, states: Collection[str]) -> dict[str, int]:
    """Count the *letters* that are in other states than *states*, by state."""
    # Name the other states instead of using exclude(), which would read the whole index.
    others = [each for each in DeadLetter.State.values if each not in states]
    counts = letters.filter(state__in=others).order_by().values_list("state")
    return dict(counts.annotate(Count("pk")))


def _ids_to_look_at(
    letters: DeadLetterQuerySet, count: int, among: DeadLetterQuerySet
) -> list[int]:
    ids = letters.order_by("pk").values_list("pk", flat=True)
    if count <= ALL:
        return list(ids)
    ends = among.aggregate(lowest=Min("pk"), highest=Max("pk"))
    found: set[int] = set()
    for _ in range(PLACES):
        # Not ORDER BY random(), which reads all rows.
        place = random.randint(ends["lowest"], ends["highest"])  # noqa: S311
        found.update(ids.filter(pk__gte=place)[: SAMPLE // PLACES])
    # All matching rows may be before the random ids: then use the first of them.
    return sorted(found) if len(found) >= SAMPLE * ENOUGH else list(ids[:SAMPLE])


def _add_inbox_counts(forecast: Forecast, ids: list[int], using: str) -> None:
    letters = DeadLetter.objects.using(using).filter(pk__any_of=ids).exclude(subscription="")
    records = InboxRecord.objects.using(using).filter(
        subscription=OuterRef("subscription"), message_id=OuterRef("message_id")
    )
    final = records.filter(state__in=(InboxRecord.State.HANDLED, InboxRecord.State.SKIPPED))
    forecast.already_handled = letters.filter(Exists(final)).count()
    if mark := InboxMark.objects.using(using).before():
        forecast.forgotten = letters.filter(sent_at__lt=mark).exclude(Exists(records)).count()


def _add_plan_counts(forecast: Forecast, ids: list[int], using: str) -> None:
    plans = Plan.objects.using(using).under_way()
    planned = PlannedLetter.objects.using(using).filter(
        dead_letter=OuterRef("pk"), plan__in=plans, state=PlannedLetter.State.PENDING
    )
    letters = DeadLetter.objects.using(using).filter(pk__any_of=ids)
    forecast.planned = letters.filter(Exists(planned)).count()


def _add_payload_problems(
    forecast: Forecast, ids: list[int], using: str, change: Callable[[Any], Any]
) -> None:
    letters = DeadLetter.objects.using(using).filter(pk__any_of=ids).order_by("pk")
    problems: Counter[bool] = Counter()
    for letter in letters.defer("traceback", "error", "payload").iterator(chunk_size=100):
        found = _problems_with(letter, change)
        if forecast.sample is None or not (found or problems[False]):
            forecast.sample = letter.pk
        problems[bool(found)] += 1
        if found:
            forecast.invalid_by_target[letter.queue, letter.subscription, letter.type] += 1
        if found and len(forecast.problems) < _EXAMPLES:
            forecast.problems.append((letter.pk, found))
    forecast.invalid = problems[True]


def _problems_with(letter: DeadLetter, change: Callable[[Any], Any]) -> list[str]:
    try:
        payload = read(letter.message(), conf.max_body_bytes).payload
    except Unreadable as error:
        return [str(error)]
    changed = change(payload)
    problems = unsendable(changed) if changed is not payload else []
    return problems or problems_with(letter, changed)


def dry_run_patch(
    selection: Selection, patch: Any, *, using: str, limit: int | None = None
) -> Forecast:
    """Predict a re-drive with a JSON merge *patch*; raise BadPlan if a plan cannot store it."""
    require_storable(patch)
    return dry_run(
        selection, using=using, change=lambda payload: merged(payload, patch), limit=limit
    )
