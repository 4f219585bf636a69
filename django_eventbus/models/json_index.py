"""An index of what is in a JSON column."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


class JsonIndex(models.Index):
    """A GIN index on PostgreSQL; SQLite makes a plain one of it."""

    # Not Django's GinIndex: from 6.1 on it wants django.contrib.postgres among INSTALLED_APPS.
    suffix = "gin"

    def create_sql(
        self,
        model: type[models.Model],
        schema_editor: BaseDatabaseSchemaEditor,
        using: str = "",
        **options: Any,
    ) -> Any:
        """Return the statement that makes it."""
        return super().create_sql(model, schema_editor, using=using or " USING gin", **options)
