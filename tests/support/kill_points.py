"""Die at a named audit event, crash the database there, or write the events down."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

KILL_AT = "EVENTBUS_TEST_KILL_AT"
#: Where to crash a private PostgreSQL, in this order; and its directory.
CRASH_AT = "EVENTBUS_TEST_CRASH_AT"
CRASHED = "EVENTBUS_TEST_CRASHED"
#: The file there without which nothing is crashed.
ARMED = "armed"
POINT_LOG = "EVENTBUS_TEST_POINT_LOG"
PREFIX = "eventbus."


def install() -> None:
    """Install what the environment asks for; audit hooks stay for the life of the process."""
    if path := os.environ.get(POINT_LOG):
        sys.addaudithook(writer(path))
    if point := os.environ.get(KILL_AT):
        sys.addaudithook(killer(point))
    if points := os.environ.get(CRASH_AT, "").split():
        sys.addaudithook(crasher(points, Path(os.environ[CRASHED])))


def writer(path: str) -> Callable[[str, tuple[object, ...]], None]:
    """Return a hook that appends the name of each of our events to *path*."""
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(name: str, _: tuple[object, ...]) -> None:
        if name.startswith(PREFIX):
            os.write(log, f"{name}\n".encode())

    return write


def killer(point: str) -> Callable[[str, tuple[object, ...]], None]:
    """Return a hook that kills this process at `name[:n]`, the n-th event; `!TERM` asks it only."""
    point, _, mild = point.partition("!")
    target, _, number = point.partition(":")
    occurrences = itertools.count(1)
    fatal = int(number or 1)

    def kill(name: str, _: tuple[object, ...]) -> None:
        if name == target and next(occurrences) == fatal:
            save_coverage()
            os.kill(os.getpid(), signal.SIGTERM if mild else signal.SIGKILL)

    return kill


def crasher(points: list[str], directory: Path) -> Callable[[str, tuple[object, ...]], None]:
    """Return a hook that crashes the database at each of *points* in turn, if it is armed again."""
    left = iter(points)
    target = next(left)
    armed = directory / ARMED

    def crash(name: str, _: tuple[object, ...]) -> None:
        nonlocal target
        # What goes on in a transaction that has just died with the server proves nothing.
        if name != target or not disarmed(armed):
            return
        target = next(left, "")
        os.write(2, f"Crashing the database at {name}.\n".encode())
        crash_postgres(directory)

    return crash


def disarmed(armed: Path) -> bool:
    """Take the file away; tell whether it was this thread that did."""
    try:
        armed.unlink()
    except FileNotFoundError:
        return False
    return True


def crash_postgres(directory: Path) -> None:
    """Crash the server in *directory*, and return when it is gone; whoever started it must ask."""
    server = int((directory / "data" / "postmaster.pid").read_text().split()[0])
    with suppress(ProcessLookupError):
        os.kill(server, signal.SIGQUIT)
        while True:
            os.kill(server, 0)
            # Not a wait for luck: between two looks at whether it is gone.
            threading.Event().wait(0.01)


def save_coverage() -> None:
    """Write down what was measured so far, since nothing can be written after the kill."""
    if "coverage" in sys.modules and (running := sys.modules["coverage"].Coverage.current()):
        running.save()
