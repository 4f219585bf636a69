"""Die at a named audit event, or write the events down: what the crash tests are made of."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable

KILL_AT = "EVENTBUS_TEST_KILL_AT"
POINT_LOG = "EVENTBUS_TEST_POINT_LOG"
PREFIX = "eventbus."


def install() -> None:
    """Install what the environment asks for; audit hooks stay for the life of the process."""
    if path := os.environ.get(POINT_LOG):
        sys.addaudithook(writer(path))
    if point := os.environ.get(KILL_AT):
        sys.addaudithook(killer(point))


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


def save_coverage() -> None:
    """Write down what was measured so far, since nothing can be written after the kill."""
    if "coverage" in sys.modules and (running := sys.modules["coverage"].Coverage.current()):
        running.save()
