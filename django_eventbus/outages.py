"""Distinguish outages from failures, and wait until an outage ends."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
#: Returns the operations that have succeeded; None means everything that it may do.
Work = Callable[[], Iterable[str] | None]
_LOCKED = ("database is locked", "database table is locked")

#: The number of errors of each kind of outage in this process; every try counts.
errors: Counter[str] = Counter()

#: The shortest and the longest wait in seconds between two tries to reach a server.
#: It doubles with each try, less a random part of up to a half.
OUTAGE_WAIT = (0.2, 5.0)
#: Seconds between two probes of an operation that has failed.
_PROBE_EVERY = 1.0
#: Seconds without another failure after which a probe ends an outage that no probe has seen.
QUIET = 30.0


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
            f"The SQLite database {using!r} is locked by another writer; see eventbus.W001.",
            operation=use_of(using),
        )
    return DatabaseUnavailable(
        f"The database {using!r} does not answer: {first_line(error)}",
        operation=use_of(using),
        is_proven=True,
    )


def use_of(using: str) -> str:
    """Return the operation that fails when the database *using* is away."""
    return f"use of database {using}"


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


@dataclass(slots=True)
class _Failure:
    at: float
    #: Whether a probe failed too. If none did, a probe that succeeds proves nothing.
    is_proven: bool


class OutageWatch:
    """
    Announces an outage once when it begins and once when it is over.

    It begins when an operation fails, and is over when every operation that failed has succeeded.
    The success of another operation does not end it. Safe to use from many threads.
    """

    def __init__(self, sender: object, part: Part) -> None:
        self.sender = sender
        self.part = part
        self._lock = threading.Lock()
        self._since = 0.0
        self._kind = ""
        self._failed: dict[str, _Failure] = {}
        self._probed = 0.0

    @property
    def is_on(self) -> bool:
        return bool(self._failed)

    def begin(self, error: Unavailable) -> None:
        now = time.monotonic()
        with self._lock:
            errors[error.kind] += 1
            is_first = not self._failed
            former = self._failed.get(error.operation)
            is_proven = error.is_proven or bool(former and former.is_proven)
            self._failed[error.operation] = _Failure(at=now, is_proven=is_proven)
            if not is_first:
                return
            self._since, self._kind = now, error.kind
        self._announce(kind=error.kind, over=False, seconds=0.0, error=error)

    def end(self, operations: Iterable[str] | None = None) -> None:
        """End the outage of *operations*, which have succeeded; None means all of them."""
        if not self._failed:
            return
        with self._lock:
            was_on = bool(self._failed)
            for each in list(self._failed) if operations is None else operations:
                self._failed.pop(each, None)
            if self._failed or not was_on:
                return
            seconds = time.monotonic() - self._since
        self._announce(kind=self._kind, over=True, seconds=seconds, error=None)

    def probe(self, is_available: Callable[[str], bool]) -> None:
        """End the outage of operations that nobody tries again, if their servers answer."""
        # Another process may have received the message, so this one may never try again.
        if not self._failed or not self._is_probe_due():
            return
        for operation, failure in list(self._failed.items()):
            if not is_available(operation):
                failure.is_proven = True
            elif failure.is_proven or time.monotonic() - failure.at > QUIET:
                self.end([operation])

    def _is_probe_due(self) -> bool:
        now = time.monotonic()
        with self._lock:
            if now - self._probed < _PROBE_EVERY:
                return False
            self._probed = now
            return True

    def _announce(self, **details: Any) -> None:
        announce(outage, self.sender, part=self.part, **details)

    def repeat(self, work: Work, stop: threading.Event) -> None:
        """Call *work* repeatedly until *stop*, and wait in outages."""
        while not stop.is_set():
            self.succeed(work, stop)

    def succeed(self, work: Work, stop: threading.Event) -> None:
        """Call *work* until it succeeds or *stop* is set, with growing pauses."""
        pause, longest = OUTAGE_WAIT
        while not stop.is_set():
            try:
                operations = work()
            except Unavailable as error:
                self.begin(error)
                stop.wait(pause * random.uniform(0.5, 1))  # noqa: S311
                pause = min(pause * 2, longest)
            else:
                self.end(operations)
                return
