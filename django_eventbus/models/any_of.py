"""Find many rows by their ids, without a placeholder for each."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models.lookups import In


@models.BigAutoField.register_lookup
class AnyOf(In):
    """`id__any_of=[…]`: as `id__in`, but on PostgreSQL with one parameter for all of them."""

    lookup_name = "any_of"

    def as_postgresql(self, compiler: Any, connection: Any, **kwargs: Any) -> tuple[str, list[Any]]:
        column, parameters = self.process_lhs(compiler, connection)
        # As bigint, like the column: of two types, PostgreSQL would compare every row with each id.
        # As text: psycopg takes longer to write a list than the server to read it.
        ids = ",".join(map(str, self.rhs))
        return f"{column} = ANY(%s::bigint[])", [*parameters, f"{{{ids}}}"]

    def get_prep_lookup(self) -> Any:
        return [int(each) for each in self.rhs]
