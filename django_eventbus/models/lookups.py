"""Lookups and an index that Django's ORM lacks."""

from __future__ import annotations

import json
from typing import Any

from django.db import models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models.fields.json import KeyTransform
from django.db.models.lookups import IContains, IEndsWith, In, IStartsWith, PatternLookup


@models.BigAutoField.register_lookup
class AnyOf(In):
    """`id__any_of=[…]`: like `id__in`, but on PostgreSQL with one parameter for all ids."""

    lookup_name = "any_of"

    def as_postgresql(self, compiler: Any, connection: Any, **kwargs: Any) -> tuple[str, list[Any]]:
        column, parameters = self.process_lhs(compiler, connection)
        # bigint, like the column: otherwise PostgreSQL would compare every row with each id.
        # As text, because psycopg is slow at writing lists.
        ids = ",".join(map(str, self.rhs))
        return f"{column} = ANY(%s::bigint[])", [*parameters, f"{{{ids}}}"]

    def get_prep_lookup(self) -> Any:
        return [int(each) for each in self.rhs]


class _ByILike(PatternLookup):
    """A lookup of Django that uses ILIKE on PostgreSQL."""

    django_lookup: type[PatternLookup]

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        # The backend finds the operator by the name of Django's lookup.
        return self.django_lookup(self.lhs, self.rhs).as_sql(compiler, connection)

    def as_postgresql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:
        # Not UPPER(error) LIKE: PostgreSQL has no statistics for it and would assume that all words
        # are rare, so it would sort all matches instead of reading the first hundred by index.
        column, parameters = self.process_lhs(compiler, connection)
        words, values = self.process_rhs(compiler, connection)
        return f"{column} ILIKE {words}", [*parameters, *values]


@models.CharField.register_lookup
@models.TextField.register_lookup
class HasWords(_ByILike, IContains):
    """`error__has_words="no stock"`: like icontains."""

    lookup_name = "has_words"
    django_lookup = IContains


@models.TextField.register_lookup
class BeginsWithWords(_ByILike, IStartsWith):
    """`error__begins_with_words="no stock"`: like istartswith."""

    lookup_name = "begins_with_words"
    django_lookup = IStartsWith


@models.CharField.register_lookup
class EndsWithWords(_ByILike, IEndsWith):
    """`error_type__ends_with_words="Error"`: like iendswith."""

    lookup_name = "ends_with_words"
    django_lookup = IEndsWith


class JsonIndex(models.Index):
    """A GIN index on PostgreSQL, and an ordinary index on SQLite."""

    # Not Django's GinIndex: from 6.1 on, it requires django.contrib.postgres in INSTALLED_APPS.
    suffix = "gin"

    def create_sql(
        self,
        model: type[models.Model],
        schema_editor: BaseDatabaseSchemaEditor,
        using: str = "",
        **options: Any,
    ) -> Any:
        """Return the statement that creates the index."""
        return super().create_sql(model, schema_editor, using=using or " USING gin", **options)


PathSteps = tuple[str | int, ...]


class JSONPath(KeyTransform):
    """
    The value at a path. Its steps are keys (texts) and list indexes (numbers).

    Django itself uses a text of digits as an index. PostgreSQL accepts it as a key or an index.
    """

    def __init__(self, path: PathSteps, *expressions: Any, **options: Any) -> None:
        super().__init__("", *expressions, **options)
        self.path = path

    def as_postgresql(self, compiler: Any, connection: Any) -> tuple[str, tuple[Any, ...]]:
        column, params = compiler.compile(self.lhs)
        return f"({column} #> %s)", (*params, [str(step) for step in self.path])

    def as_sqlite(
        self, compiler: Any, connection: Any, **context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        column, params = compiler.compile(self.lhs)
        # Like Django, whose key lookups compare false, true and null by these names.
        sql = (
            f"(CASE WHEN JSON_TYPE({column}, %s) IN ('false', 'true', 'null') "
            f"THEN JSON_TYPE({column}, %s) ELSE JSON_EXTRACT({column}, %s) END)"
        )
        return sql, (*params, "$" + "".join(map(_sqlite_step, self.path))) * 3


def _sqlite_step(step: str | int) -> str:
    return f"[{step}]" if isinstance(step, int) else f".{json.dumps(step)}"
