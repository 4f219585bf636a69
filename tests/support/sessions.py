"""Others on PostgreSQL: a session that holds a row, and a server that is in a hurry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, connections, models


@contextmanager
def locked_by_another(row: models.Model) -> Iterator[None]:
    """Hold the lock of *row* in a session of its own, as a handler does while it runs."""
    session = connections.create_connection("default")
    session.set_autocommit(False)
    try:
        with session.cursor() as cursor:
            table = row._meta.db_table
            cursor.execute(f"SELECT 1 FROM {table} WHERE id = %s FOR UPDATE", [row.pk])
        yield
    finally:
        # Before the session is closed: the server may notice that later, and hold the lock until then.
        session.rollback()
        session.close()


@contextmanager
def impatient(milliseconds: int) -> Iterator[None]:
    """Let PostgreSQL cancel each statement of this session that takes longer."""
    set_timeout(milliseconds)
    try:
        yield
    finally:
        set_timeout(0)


def set_timeout(milliseconds: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', %s, false)", [str(milliseconds)])
