"""Limit the time of each statement of a page on PostgreSQL. SQLite has no such limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from django.db import OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.translation import ngettext

#: Less than the time after which most web servers abandon a request.
SECONDS = 20.0

_CANCELED = "57014"
#: A shorter limit of the project stays.
_SET = (
    "SELECT set_config('statement_timeout', %s, true) "
    "WHERE current_setting('statement_timeout')::interval NOT BETWEEN '1ms' AND %s::interval"
)


class StatementTimeout(Exception):
    """PostgreSQL cancelled a statement of the page."""


class _Limit:
    """Sets the limit in every transaction of a connection."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection
        #: The open blocks within which the limit was set. It ends with the innermost of them.
        self._blocks: list[Any] = []
        self._is_setting = False

    def __call__(self, execute: Callable[..., Any], *arguments: Any) -> Any:
        if self._is_setting:
            return execute(*arguments)
        # SET LOCAL ends with its transaction. SET would stay on a connection of a pooler, which
        # another process gets next.
        with ExitStack() as stack:
            if self._connection.get_autocommit():
                stack.enter_context(transaction.atomic(using=self._connection.alias))
            self._set()
            return execute(*arguments)

    def _set(self) -> None:
        blocks = self._connection.atomic_blocks
        if self._blocks and blocks[: len(self._blocks)] == self._blocks:
            return
        self._is_setting = True
        try:
            limit = f"{round(SECONDS * 1000)}ms"
            with self._connection.cursor() as cursor:
                cursor.execute(_SET, [limit, limit])
        finally:
            self._is_setting = False
        self._blocks = list(blocks)


@contextmanager
def limited_statements() -> Iterator[None]:
    """Raise StatementTimeout if a statement takes longer than SECONDS."""
    with ExitStack() as stack:
        try:
            for connection in connections.all():
                if connection.vendor == "postgresql":
                    stack.enter_context(_within_transaction(connection))
                    stack.enter_context(connection.execute_wrapper(_Limit(connection)))
            # Closed here, so that a transaction of the caller is usable when the error is raised.
            with stack.pop_all():
                yield
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", "") != _CANCELED:
                raise
            raise StatementTimeout from error


@contextmanager
def _within_transaction(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Undo only this page's part of a transaction that is open already, and then its limit."""
    if not connection.in_atomic_block:
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('statement_timeout')")
        (before,) = cursor.fetchone()
    with transaction.atomic(using=connection.alias):
        yield
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [before])


def timeout_text() -> str:
    """Say what happened and what the reader can do."""
    seconds = round(SECONDS) or 1
    words = ngettext(
        "The database did not answer within %d second. Narrow the filter, or try again later.",
        "The database did not answer within %d seconds. Narrow the filter, or try again later.",
        seconds,
    )
    return words % seconds
