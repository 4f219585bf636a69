"""Tell an outage from a failure, and wait for its end."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import Error, InterfaceError, OperationalError, connections

from django_eventbus.conf import conf
from django_eventbus.exceptions import DatabaseUnavailable, Unavailable
from django_eventbus.signals import announce, outage

#: Serialization failure and deadlock: PostgreSQL undid the work and asks for it to be run again.
_RUN_AGAIN = ("40001", "40P01")
#: Connection exceptions, and the server being shut down, crashed or starting.
_CONNECTION_GONE = ("08", "57P01", "57P02", "57P03")
_LOCKED = ("database is locked", "database table is locked")

#: How often this process met each kind of outage: every try counts, not only the first.
errors: Counter[str] = Counter()


@contextmanager
def proven(using: str) -> Iterator[None]:
    """Turn a database error into DatabaseUnavailable, but only if it is proved to be one."""
    try:
        yield
    except (OperationalError, InterfaceError) as error:
        # What PostgreSQL asks to be run again is run again by whoever waits and comes again.
        if not (is_worth_running_again(error) or is_away(using)):
            raise
        raise unavailable(using, error) from error


def unavailable(using: str, error: BaseException) -> DatabaseUnavailable:
    """Say what is the matter with the database *using*."""
    if is_locked(error):
        return DatabaseUnavailable(
            f"The SQLite database {using!r} is locked by another writer; see eventbus.W001."
        )
    return DatabaseUnavailable(f"The database {using!r} does not answer: {first_line(error)}")


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def is_outage(error: BaseException, using: str) -> bool:
    """Whether *error* is one of the database, and a fresh connection fails too."""
    return isinstance(error, OperationalError | InterfaceError) and is_away(using)


def is_away(using: str) -> bool:
    """Whether a fresh connection fails too: the proof of an outage."""
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
    """Whether PostgreSQL's connection broke, whatever the server is doing now."""
    # Told by the error: Django has opened a new connection by the time anyone looks.
    # Errors that psycopg raises by itself, without a state, are about the connection.
    state = getattr(error.__cause__, "sqlstate", "")
    return state is None or state.startswith(_CONNECTION_GONE)


def is_locked(error: BaseException) -> bool:
    """Whether SQLite gave up waiting for another writer."""
    return isinstance(error, OperationalError) and any(each in str(error) for each in _LOCKED)


def is_worth_running_again(error: BaseException) -> bool:
    """Whether the transaction was undone through no fault of the handler."""
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    sqlstate = getattr(error.__cause__, "sqlstate", "")
    return sqlstate in _RUN_AGAIN or is_locked(error) or is_lost(error)


class OutageWatch:
    """Announces an outage once when it begins and once when it is over."""

    def __init__(self, sender: object) -> None:
        self.sender = sender
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
        announce(outage, self.sender, kind=error.kind, over=False, seconds=0.0, error=error)

    def end(self) -> None:
        with self._lock:
            if self._since is None:
                return
            seconds, self._since = time.monotonic() - self._since, None
        announce(outage, self.sender, kind=self._kind, over=True, seconds=seconds, error=None)

    def repeat(self, work: Callable[[], None], stop: threading.Event) -> None:
        """Call *work* again and again until *stop*, through outages."""
        while not stop.is_set():
            self.succeed(work, stop)

    def succeed(self, work: Callable[[], None], stop: threading.Event) -> None:
        """Call *work* until it succeeds or *stop*, waiting longer and longer in between."""
        pause, longest = conf.outage_wait
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
