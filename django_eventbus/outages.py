"""Distinguish outages from failures, and wait until an outage ends."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from django.db import (
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    OperationalError,
    connections,
)

from django_eventbus.exceptions import DatabaseUnavailable, Unavailable
from django_eventbus.signals import announce, outage

#: Serialization failure and deadlock: PostgreSQL rolled back, and the work can run again.
_RUN_AGAIN = ("40001", "40P01")
#: Connection exceptions, and the server being shut down, crashed or starting.
_CONNECTION_GONE = ("08", "57P01", "57P02", "57P03")
#: Which part of a process waits: a label of metrics and a column of outages (Outage.Part).
Part = Literal["relay", "consumer", "transport", "command"]
#: Data exceptions, violated constraints, and exceeded limits of a statement.
_ABOUT_VALUES = ("22", "23", "54")
_LOCKED = ("database is locked", "database table is locked")

#: The number of errors of each kind of outage in this process; every try counts.
errors: Counter[str] = Counter()

#: The shortest and the longest wait in seconds between two tries to reach a server.
#: It doubles with each try, less a random part of up to a half.
OUTAGE_WAIT = (0.2, 5.0)


@contextmanager
def proven(using: str) -> Iterator[None]:
    """Turn a database error into DatabaseUnavailable if a new connection fails too."""
    try:
        yield
    except (OperationalError, InterfaceError) as error:
        # A rolled back transaction is run again by the caller, as after an outage.
        if not (is_worth_running_again(error) or is_away(using)):
            raise
        raise unavailable(using, error) from error


def unavailable(using: str, error: BaseException) -> DatabaseUnavailable:
    """Return the error that describes the outage of the database *using*."""
    if is_locked(error):
        return DatabaseUnavailable(
            f"The SQLite database {using!r} is locked by another writer; see eventbus.W001."
        )
    return DatabaseUnavailable(f"The database {using!r} does not answer: {first_line(error)}")


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def is_outage(error: BaseException, using: str) -> bool:
    """Whether *error* is a database error and a new connection fails too."""
    return isinstance(error, OperationalError | InterfaceError) and is_away(using)


def is_away(using: str) -> bool:
    """Whether a new connection fails, which proves an outage."""
    probe = connections[using].copy()
    try:
        with probe.cursor() as cursor:
            cursor.execute("SELECT 1")
    except Error:
        return True
    finally:
        probe.close()
    return False


def is_lost(error: BaseException) -> bool:
    """Whether the connection to PostgreSQL broke, even if the server answers again."""
    # Decided by the error: Django may have opened a new connection already.
    # Errors that psycopg raises by itself, without a state, are about the connection.
    state = getattr(error.__cause__, "sqlstate", "")
    return state is None or state.startswith(_CONNECTION_GONE)


def is_locked(error: BaseException) -> bool:
    """Whether SQLite gave up waiting for another writer."""
    return isinstance(error, OperationalError) and any(each in str(error) for each in _LOCKED)


def is_about_values(error: BaseException) -> bool:
    """Whether *error* is about values that were to be written, and not about the database."""
    if not isinstance(error, Error):
        return isinstance(error, ValueError | OverflowError | TypeError | RecursionError)
    sqlstate = getattr(error.__cause__, "sqlstate", None)
    # SQLite has no states, and neither has an error that psycopg raises by itself.
    return (
        sqlstate.startswith(_ABOUT_VALUES)
        if sqlstate
        else isinstance(error, DataError | IntegrityError)
    )


def is_worth_running_again(error: BaseException) -> bool:
    """Whether the transaction was undone through no fault of the handler."""
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    sqlstate = getattr(error.__cause__, "sqlstate", "")
    return sqlstate in _RUN_AGAIN or is_locked(error) or is_lost(error)


class OutageWatch:
    """Announces an outage once when it begins and once when it is over."""

    def __init__(self, sender: object, part: Part) -> None:
        self.sender = sender
        self.part = part
        self._lock = threading.Lock()
        self._since: float | None = None
        self._kind = ""

    @property
    def is_on(self) -> bool:
        return self._since is not None

    def begin(self, error: Unavailable) -> None:
        with self._lock:
            errors[error.kind] += 1
            if self._since is not None:
                return
            self._since, self._kind = time.monotonic(), error.kind
        self._announce(kind=error.kind, over=False, seconds=0.0, error=error)

    def end(self) -> None:
        with self._lock:
            if self._since is None:
                return
            seconds, self._since = time.monotonic() - self._since, None
        self._announce(kind=self._kind, over=True, seconds=seconds, error=None)

    def _announce(self, **details: Any) -> None:
        announce(outage, self.sender, part=self.part, **details)

    def repeat(self, work: Callable[[], None], stop: threading.Event) -> None:
        """Call *work* repeatedly until *stop*, and wait in outages."""
        while not stop.is_set():
            self.succeed(work, stop)

    def succeed(self, work: Callable[[], None], stop: threading.Event) -> None:
        """Call *work* until it succeeds or *stop* is set, with growing pauses."""
        pause, longest = OUTAGE_WAIT
        while not stop.is_set():
            try:
                work()
            except Unavailable as error:
                self.begin(error)
                stop.wait(pause * random.uniform(0.5, 1))  # noqa: S311
                pause = min(pause * 2, longest)
            else:
                self.end()
                return
