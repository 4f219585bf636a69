"""The filters of dead letters: how to parse each value, and the condition for the query."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Q
from django.utils import timezone

from django_eventbus.dead_letters.filter_values import (
    absolute,
    header_path,
    ids,
    nonempty_text,
    one_of,
    payload_path,
    plain,
    plan_and_outcome,
    whole,
    yes_or_no,
)
from django_eventbus.dead_letters.snapshot import Snapshot
from django_eventbus.models import DeadLetter, PlannedLetter


def _edited(is_wanted: bool) -> Q:
    unedited = Q(replaced_by="", edited_from="")
    return ~unedited if is_wanted else unedited


def _ignored(is_wanted: bool) -> Q:
    ignored = Q(ignored_until__gt=timezone.now())
    return ignored if is_wanted else Q(ignored_until=None) | ~ignored


def _error(words: str) -> Q:
    """Match the text that a list shows, "type: words", or a part of it."""
    # Each column by itself: PostgreSQL has no statistics for concatenated columns.
    found = Q(error__has_words=words)
    # The name of a class contains no spaces, so search for words with spaces in one column only.
    if not any(map(str.isspace, words)):
        found |= Q(error_type__has_words=words)
    kind, colon, after_colon = words.partition(":")
    if not colon or after_colon[:1].strip():
        return found
    begins = Q(error__begins_with_words=after_colon[1:]) if after_colon[1:] else ~Q(error="")
    return found | (Q(error_type__ends_with_words=kind) & begins)


def _planned(plan_and_outcome: tuple[int, str]) -> Q:
    plan_id, outcome = plan_and_outcome
    rows = PlannedLetter.objects.filter(plan_id=plan_id)
    if outcome:
        rows = rows.filter(state=outcome)
    # A message that the plan edited failed or was healed under its own id. A union, because
    # PostgreSQL would read every dead letter for "or".
    edited = DeadLetter.objects.filter(message_id__in=rows.exclude(sent_as="").values("sent_as"))
    same = rows.filter(sent_as="").values("dead_letter_id")
    return Q(pk__in=same.union(edited.values("pk"), all=True))


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter name=value. A new one needs an entry in FILTERS and a field in the admin's form."""

    name: str
    #: Parses the value, or raises ValueError.
    read: Callable[[str], Any]
    #: Returns the condition for a value.
    condition: Callable[[Any], Q]
    #: Whether the value may also be an age such as 24h.
    takes_age: bool = False


@dataclass(frozen=True, slots=True)
class PathFilter:
    """A filter name.path=value for a value in a JSON column."""

    name: str
    read_path: Callable[[str], tuple[str, ...]]
    column: str


FILTERS: Mapping[str, Filter] = {
    each.name: each
    for each in (
        Filter("type", plain, lambda value: Q(type=value)),
        Filter("queue", plain, lambda value: Q(queue=value)),
        Filter("subscription", plain, lambda value: Q(subscription=value)),
        Filter("kind", one_of(DeadLetter.Kind.values), lambda value: Q(kind=value)),
        Filter("state", one_of(DeadLetter.State.values), lambda value: Q(state=value)),
        Filter("group", plain, lambda value: Q(fingerprint=value)),
        Filter("error_type", plain, lambda value: Q(error_type=value)),
        Filter("error", nonempty_text, _error),
        Filter("source", plain, lambda value: Q(source=value)),
        Filter("message_id", plain, lambda value: Q(message_id=value)),
        Filter("parked_after", absolute, lambda value: Q(parked_at__gte=value), takes_age=True),
        Filter("parked_before", absolute, lambda value: Q(parked_at__lt=value), takes_age=True),
        Filter("attempts_min", whole, lambda value: Q(attempts__gte=value)),
        Filter("attempts_max", whole, lambda value: Q(attempts__lte=value)),
        Filter("edited", yes_or_no, _edited),
        Filter("redriven", yes_or_no, lambda value: Q(round__gt=0) if value else Q(round=0)),
        Filter("ignored", yes_or_no, _ignored),
        Filter("plan", plan_and_outcome(PlannedLetter.State.values), _planned),
        Filter("id", ids, lambda value: Q(pk__any_of=value)),
        Filter("as_of", Snapshot.read, lambda snapshot: snapshot.condition),
    )
}
PATH_FILTERS: Mapping[str, PathFilter] = {
    each.name: each
    for each in (
        PathFilter("header", header_path, "headers"),
        PathFilter("payload", payload_path, "payload"),
    )
}
#: The names of filters for people.
FILTER_NAMES = (*(name for name in FILTERS if name != "as_of"), "header.NAME", "payload.PATH")
