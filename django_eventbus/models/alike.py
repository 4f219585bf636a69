"""Write many changed rows, with one statement for those that changed alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from django.db import models

#: Ids in one statement; SQLite takes so many parameters and not many more.
_MOST = 500


def save_alike(rows: Iterable[models.Model], names: Sequence[str], using: str) -> None:
    """Save the columns *names* of *rows*, which are of one table."""
    # Not bulk_update(): it names a value for each row and column, and making that statement
    # takes longer than anything else that a plan does.
    groups: dict[tuple[Any, ...], list[models.Model]] = defaultdict(list)
    for row in rows:
        groups[tuple(getattr(row, name) for name in names)].append(row)
    for values, alike in groups.items():
        changes = dict(zip(names, values, strict=True))
        table = type(alike[0])._base_manager.using(using)
        for start in range(0, len(alike), _MOST):
            ids = [row.pk for row in alike[start : start + _MOST]]
            table.filter(pk__in=ids).update(**changes)
