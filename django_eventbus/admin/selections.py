"""What a person was shown before they said yes: which rows, and as what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import BadRequest
from django.db.models import Count, QuerySet

#: Rows that one request moves: at some milliseconds each, more would outlast a web server's limit.
MOST_AT_ONCE = 1_000
GROUPS_LIMIT = 50


@dataclass(frozen=True, slots=True)
class Selection:
    """
    Frozen rows, each as its id and its stamp: the value of a column that changes when it moves.

    Written as one form field, because Django refuses forms with more than a thousand.
    """

    stamps: tuple[tuple[int, str], ...]

    @classmethod
    def of(cls, rows: QuerySet[Any], stamp: str) -> Selection:
        found = rows.order_by("pk").values_list("pk", stamp)[:MOST_AT_ONCE]
        return cls(tuple((key, str(value)) for key, value in found.iterator()))

    @classmethod
    def read(cls, text: str) -> Selection:
        """Read what __str__() wrote, or raise BadRequest."""
        try:
            pairs = [each.split("_", 1) for each in text.split()]
            return cls(tuple((int(key), stamp) for key, stamp in pairs[:MOST_AT_ONCE]))
        except ValueError:
            raise BadRequest("This is not a selection.") from None

    def __str__(self) -> str:
        return " ".join(f"{key}_{stamp}" for key, stamp in self.stamps)

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return iter(self.stamps)

    def __len__(self) -> int:
        return len(self.stamps)

    @property
    def ids(self) -> list[int]:
        return [key for key, _ in self.stamps]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What would move, what would not, and why."""

    selection: Selection
    #: How many could move, if one request were enough.
    movable: int
    #: (state, count) of what cannot move.
    staying: list[tuple[str, int]]
    #: (values of the columns grouped by, count) of what can move, the largest group first.
    groups: list[tuple[list[str], int]]

    @property
    def is_cut(self) -> bool:
        return len(self.selection) < self.movable


def preview_of(
    rows: QuerySet[Any], states: tuple[str, ...], *, stamp: str, grouped_by: tuple[str, ...]
) -> Preview:
    """Count those of *rows* that are in one of *states* in groups, and the others by state."""
    movable = rows.filter(state__in=states)
    selection = Selection.of(movable, stamp)
    return Preview(
        selection=selection,
        movable=movable.count() if len(selection) == MOST_AT_ONCE else len(selection),
        staying=_by_state(rows.exclude(state__in=states)),
        groups=_groups(movable, grouped_by),
    )


def _by_state(rows: QuerySet[Any]) -> list[tuple[str, int]]:
    names = dict(rows.model._meta.get_field("state").flatchoices)
    counts = rows.order_by("state").values_list("state").annotate(Count("pk"))
    return [(names.get(state, state), count) for state, count in counts]


def _groups(rows: QuerySet[Any], grouped_by: tuple[str, ...]) -> list[tuple[list[str], int]]:
    counts = rows.order_by().values_list(*grouped_by).annotate(count=Count("pk"))
    largest = counts.order_by("-count", *grouped_by)[:GROUPS_LIMIT]
    return [(list(values), count) for *values, count in largest]
