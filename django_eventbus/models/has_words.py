"""Find text by words in it, so that PostgreSQL knows how many it will find."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models.lookups import IContains, IEndsWith, IStartsWith, PatternLookup


class _ByILike(PatternLookup):
    """A lookup of Django's, but on PostgreSQL by ILIKE."""

    usual: type[PatternLookup]

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        # By the name of the lookup, which the backend looks its operator up by.
        return self.usual(self.lhs, self.rhs).as_sql(compiler, connection)

    def as_postgresql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:
        # Not UPPER(error) LIKE, of which it has no statistics: it would take any words to be
        # rare, and sort all that is found where the first hundred by index would do.
        column, parameters = self.process_lhs(compiler, connection)
        words, values = self.process_rhs(compiler, connection)
        return f"{column} ILIKE {words}", [*parameters, *values]


@models.CharField.register_lookup
@models.TextField.register_lookup
class HasWords(_ByILike, IContains):
    """`error__has_words="no stock"`: as icontains."""

    lookup_name = "has_words"
    usual = IContains


@models.TextField.register_lookup
class BeginsWithWords(_ByILike, IStartsWith):
    """`error__begins_with_words="no stock"`: as istartswith."""

    lookup_name = "begins_with_words"
    usual = IStartsWith


@models.CharField.register_lookup
class EndsWithWords(_ByILike, IEndsWith):
    """`error_type__ends_with_words="Error"`: as iendswith."""

    lookup_name = "ends_with_words"
    usual = IEndsWith
