"""What is at a path in a column of JSON: names and numbers as they are meant, on each database."""

from __future__ import annotations

import json
from typing import Any

from django.db.models.fields.json import KeyTransform

Path = tuple[str | int, ...]


class JSONPlace(KeyTransform):
    """
    The value at a path of keys, which are texts, and of places in lists, which are numbers.

    Django itself takes a text of digits for a place. On PostgreSQL it is either, as found.
    """

    def __init__(self, path: Path, *expressions: Any, **options: Any) -> None:
        super().__init__("", *expressions, **options)
        self.path = path

    def as_postgresql(self, compiler: Any, connection: Any) -> tuple[str, tuple[Any, ...]]:
        column, params = compiler.compile(self.lhs)
        return f"({column} #> %s)", (*params, [str(step) for step in self.path])

    def as_sqlite(
        self, compiler: Any, connection: Any, **context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        column, params = compiler.compile(self.lhs)
        # As Django does it: the lookups of a key compare these three with their names.
        sql = (
            f"(CASE WHEN JSON_TYPE({column}, %s) IN ('false', 'true', 'null') "
            f"THEN JSON_TYPE({column}, %s) ELSE JSON_EXTRACT({column}, %s) END)"
        )
        return sql, (*params, "$" + "".join(map(_written, self.path))) * 3


def _written(step: str | int) -> str:
    return f"[{step}]" if isinstance(step, int) else f".{json.dumps(step)}"
