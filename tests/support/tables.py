"""Tests of a table: one test for all of its rows, where pytest would make one of each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest
from django.db import connection, transaction

Test = Callable[..., None]


def table(names: str | Sequence[str], rows: Iterable[Any]) -> Callable[[Test], Test]:
    """Run the test with each row; a failure names its row, and the other rows run all the same.

    The arguments are those of pytest.mark.parametrize. The rows share the test's fixtures,
    and leave each other no rows of the database in a test that is rolled back.
    """
    columns = [names] if isinstance(names, str) else list(names)
    given = [(row,) if isinstance(names, str) else tuple(row) for row in rows]

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)
        fixtures = [each for each in signature.parameters.values() if each.name not in columns]

        @wraps(test)
        def run(**values: Any) -> None:
            failures = [
                error
                for row in given
                if (error := failure(test, {**values, **dict(zip(columns, row, strict=True))}))
            ]
            if failures:
                raise (
                    failures[0]
                    if len(failures) == 1
                    else BaseExceptionGroup(f"{len(failures)} of {len(given)} rows fail", failures)
                )

        run.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return run

    return decorate


@contextmanager
def undone() -> Iterator[None]:
    """Leave no rows to the next run, if the test itself is in a transaction."""
    if not connection.in_atomic_block:
        yield
        return
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def failure(test: Test, values: dict[str, Any]) -> BaseException | None:
    """Return what the test raises with these values, or None."""
    try:
        with undone():
            test(**values)
    except (Exception, pytest.fail.Exception) as error:
        error.add_note(f"The row: {values!r:.2000}")
        return error
    return None
