"""The dead letters that a selection means: its terms as conditions of a query."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from itertools import groupby, product
from operator import or_
from typing import Any

from django.db import connections
from django.db.models import Q
from django.utils import timezone

from django_eventbus.cuts import make_cut
from django_eventbus.filter_values import may_be_place
from django_eventbus.models import DeadLetter, PlannedLetter
from django_eventbus.models.dead_letter import DeadLetterQuerySet
from django_eventbus.models.json_place import JSONPlace, Path
from django_eventbus.selections import Cut, Selection, Term

#: A count stops here: a page says "more than" instead of counting a million.
COUNT_LIMIT = 10_000
_COLUMNS = {"payload": "payload", "header": "headers"}


def letters_of(selection: Selection, using: str) -> DeadLetterQuerySet:
    """Return the dead letters that *selection* means, as they are now."""
    found = DeadLetter.objects.using(using)
    terms = sorted(selection.terms, key=lambda term: term.written_name)
    for number, (_, same) in enumerate(groupby(terms, key=lambda term: term.written_name)):
        alternatives = list(same)
        if alternatives[0].path:
            found = _with_json(found, f"place_{number}", alternatives)
        else:
            conditions = [_CONDITIONS[term.name](term.value) for term in alternatives]
            found = found.filter(_any(conditions))
    return found


def freeze(selection: Selection, using: str) -> Selection:
    """Return *selection* as of now: what is parked from now on is not in it."""
    return selection if selection.is_frozen else selection.frozen(make_cut(using))


def capped_count(letters: DeadLetterQuerySet, limit: int = COUNT_LIMIT) -> int:
    """Count up to one more than *limit*, so that a count of millions is as quick."""
    return letters.order_by().values("pk")[: limit + 1].count()


def page_of(
    letters: DeadLetterQuerySet, *, size: int, after: tuple[Any, int] | None = None
) -> list[DeadLetter]:
    """Return a page of the latest first; *after* is (parked_at, pk) of the last row before it."""
    ordered = letters.order_by("-parked_at", "-pk").defer("body", "traceback", "payload", "headers")
    if after:
        parked_at, key = after
        # The first condition is for the index, which cannot be searched by the second.
        ordered = ordered.filter(parked_at__lte=parked_at)
        ordered = ordered.filter(Q(parked_at__lt=parked_at) | Q(pk__lt=key))
    return list(ordered[:size])


def _any(conditions: Iterable[Q]) -> Q:
    return reduce(or_, conditions, Q())


def _with_json(letters: DeadLetterQuerySet, name: str, terms: list[Term]) -> DeadLetterQuerySet:
    column, path = _COLUMNS[terms[0].name], terms[0].path
    values = [value for term in terms for value in term.value]
    # A header is never in a list.
    has_places = column == "payload" and any(map(may_be_place, path))
    is_postgres = connections[letters.db].vendor == "postgresql"
    # Containment, which the GIN index answers, is PostgreSQL's; it knows no places in a list.
    if is_postgres and not has_places:
        nested = [Q(**{f"{column}__contains": _nested(path, value)}) for value in values]
        return letters.filter(_any(nested))
    readings = _readings(path) if has_places and not is_postgres else [path]
    places = {f"{name}_{n}": JSONPlace(each, column) for n, each in enumerate(readings)}
    matches = (Q(**{place: value}) for place in places for value in values)
    return letters.alias(**places).filter(_any(matches))


def _readings(path: Iterable[str]) -> list[Path]:
    """Return *path* with each number as a key and as a place in a list, in every combination."""
    return list(product(*((step, int(step)) if may_be_place(step) else (step,) for step in path)))


def _nested(path: Iterable[str], value: Any) -> Any:
    for part in reversed(tuple(path)):
        value = {part: value}
    return value


def _cut(cut: Cut) -> Q:
    return Q(parked_at__lte=cut.at, pk__lte=cut.highest)


def _edited(is_wanted: bool) -> Q:
    unedited = Q(replaced_by="", edited_from="")
    return ~unedited if is_wanted else unedited


def _ignored(is_wanted: bool) -> Q:
    ignored = Q(ignored_until__gt=timezone.now())
    return ignored if is_wanted else Q(ignored_until=None) | ~ignored


def _error(words: str) -> Q:
    """Match what a list shows, "type: words", or a part of that."""
    # Column by column, not joined: of what is joined, PostgreSQL has no statistics.
    found = Q(error__has_words=words)
    # The name of a class has no blanks: words that have some are looked for in one column only.
    if not any(map(str.isspace, words)):
        found |= Q(error_type__has_words=words)
    kind, colon, rest = words.partition(":")
    if not colon or rest[:1].strip():
        return found
    begins = Q(error__begins_with_words=rest[1:]) if rest[1:] else ~Q(error="")
    return found | (Q(error_type__ends_with_words=kind) & begins)


def _planned(plan_and_outcome: tuple[int, str]) -> Q:
    plan_id, outcome = plan_and_outcome
    rows = PlannedLetter.objects.filter(plan_id=plan_id)
    if outcome:
        rows = rows.filter(state=outcome)
    # What was edited on the way failed, or healed, under an id of its own. Not by "or", for
    # which PostgreSQL would look at every dead letter.
    edited = DeadLetter.objects.filter(message_id__in=rows.exclude(sent_as="").values("sent_as"))
    same = rows.filter(sent_as="").values("dead_letter_id")
    return Q(pk__in=same.union(edited.values("pk"), all=True))


_CONDITIONS: dict[str, Callable[[Any], Q]] = {
    "type": lambda value: Q(type=value),
    "queue": lambda value: Q(queue=value),
    "subscription": lambda value: Q(subscription=value),
    "kind": lambda value: Q(kind=value),
    "state": lambda value: Q(state=value),
    "group": lambda value: Q(fingerprint=value),
    "error_type": lambda value: Q(error_type=value),
    "error": _error,
    "source": lambda value: Q(source=value),
    "message_id": lambda value: Q(message_id=value),
    "parked_after": lambda value: Q(parked_at__gte=value),
    "parked_before": lambda value: Q(parked_at__lt=value),
    "attempts_min": lambda value: Q(attempts__gte=value),
    "attempts_max": lambda value: Q(attempts__lte=value),
    "edited": _edited,
    "redriven": lambda value: Q(round__gt=0) if value else Q(round=0),
    "ignored": _ignored,
    "plan": _planned,
    "id": lambda value: Q(pk__any_of=value),
    "as_of": _cut,
}
