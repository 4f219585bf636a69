"""Bulk updates that share one statement for equal values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from django.db import models

#: The number of ids in one statement. SQLite does not accept many more parameters.
_BATCH_SIZE = 500


def update_grouped(rows: Iterable[models.Model], names: Sequence[str], using: str) -> None:
    """Save the columns *names* of *rows*, which are of one table."""
    # Not bulk_update(): its statement has a value for each row and column, and building it takes
    # longer than everything else in a plan.
    groups: dict[tuple[Any, ...], list[models.Model]] = defaultdict(list)
    for row in rows:
        groups[tuple(getattr(row, name) for name in names)].append(row)
    for values, group in groups.items():
        changes = dict(zip(names, values, strict=True))
        table = type(group[0])._base_manager.using(using)
        for start in range(0, len(group), _BATCH_SIZE):
            ids = [row.pk for row in group[start : start + _BATCH_SIZE]]
            table.filter(pk__in=ids).update(**changes)
