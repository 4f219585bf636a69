"""Turn a selection into a queryset, and freeze it with a snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from itertools import groupby, product
from operator import or_
from typing import Any

from django.db import connections
from django.db.models import Q

from django_eventbus.dead_letters.filter_values import may_be_list_index
from django_eventbus.dead_letters.filters import FILTERS, PATH_FILTERS
from django_eventbus.dead_letters.selection import Selection, Term
from django_eventbus.dead_letters.snapshot import take_snapshot
from django_eventbus.models import DeadLetter
from django_eventbus.models.dead_letters import DeadLetterQuerySet
from django_eventbus.models.lookups import JSONPath, PathSteps

#: The limit of a count: a page shows "more than" instead of counting a million rows.
COUNT_LIMIT = 10_000


def matching(selection: Selection, using: str) -> DeadLetterQuerySet:
    """Return the dead letters that match *selection* now."""
    found = DeadLetter.objects.using(using)
    terms = sorted(selection.terms, key=lambda term: term.written_name)
    for number, (_, same) in enumerate(groupby(terms, key=lambda term: term.written_name)):
        alternatives = list(same)
        if alternatives[0].path:
            found = _with_json(found, f"place_{number}", alternatives)
        else:
            conditions = [FILTERS[term.name].condition(term.value) for term in alternatives]
            found = found.filter(_any(conditions))
    return found


def freeze(selection: Selection, using: str) -> Selection:
    """Return *selection* as of now, without dead letters that are parked later."""
    return selection if selection.is_frozen else selection.frozen(take_snapshot(using))


def capped_count(letters: DeadLetterQuerySet, limit: int = COUNT_LIMIT) -> int:
    """Count up to one more than *limit*, so that the time for millions of rows is limited."""
    return letters.order_by().values("pk")[: limit + 1].count()


def page_of(
    letters: DeadLetterQuerySet, *, size: int, after: tuple[Any, int] | None = None
) -> list[DeadLetter]:
    """Return a page, the latest first. *after* is (parked_at, pk) of the last row before it."""
    ordered = letters.order_by("-parked_at", "-pk").defer("body", "traceback", "payload", "headers")
    if after:
        parked_at, key = after
        # The first condition is redundant, but the index cannot be used for the second.
        ordered = ordered.filter(parked_at__lte=parked_at)
        ordered = ordered.filter(Q(parked_at__lt=parked_at) | Q(pk__lt=key))
    return list(ordered[:size])


def _any(conditions: Iterable[Q]) -> Q:
    return reduce(or_, conditions, Q())


def _with_json(letters: DeadLetterQuerySet, name: str, terms: list[Term]) -> DeadLetterQuerySet:
    column, path = PATH_FILTERS[terms[0].name].column, terms[0].path
    values = [value for term in terms for value in term.value]
    # A header is never in a list.
    may_have_indexes = column == "payload" and any(map(may_be_list_index, path))
    is_postgres = connections[letters.db].vendor == "postgresql"
    # Only PostgreSQL has containment, which uses the GIN index but has no list indexes.
    if is_postgres and not may_have_indexes:
        nested = [Q(**{f"{column}__contains": _nested(path, value)}) for value in values]
        return letters.filter(_any(nested))
    variants = _path_variants(path) if may_have_indexes and not is_postgres else [path]
    places = {f"{name}_{n}": JSONPath(each, column) for n, each in enumerate(variants)}
    matches = (Q(**{place: value}) for place in places for value in values)
    return letters.alias(**places).filter(_any(matches))


def _path_variants(path: Iterable[str]) -> list[PathSteps]:
    """Return *path* with each number as a key and as a list index, in every combination."""
    return list(
        product(*((step, int(step)) if may_be_list_index(step) else (step,) for step in path))
    )


def _nested(path: Iterable[str], value: Any) -> Any:
    for part in reversed(tuple(path)):
        value = {part: value}
    return value
