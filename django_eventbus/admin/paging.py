"""Lists of tables that may hold millions of rows: no page of them counts all."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.core.paginator import Paginator

if TYPE_CHECKING:
    _Paginator = Paginator[Any]
else:
    _Paginator = Paginator

#: Rows that can be paged through; whoever looks for an older one filters or searches.
MOST = 10_000


class CappedPaginator(_Paginator):
    """Counts no further than MOST, which every database does in a moment."""

    @cached_property
    def count(self) -> int:
        """How many rows can be paged through."""
        return min(self._counted, MOST)

    @cached_property
    def _counted(self) -> int:
        rows: Any = self.object_list
        # The order stays: without it PostgreSQL may look for the rows where they are not.
        return int(rows[: MOST + 1].count())

    @property
    def is_cut(self) -> bool:
        """Whether there are more rows."""
        return self._counted > MOST
