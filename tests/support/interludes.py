"""Do something at a named step of this process: what another process does between two steps."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interlude(point: str, work: Callable[[], object]) -> Iterator[None]:
    """Do *work* when `eventbus.<point>` is reached the first time; fail if it is not."""
    name, waiting, audit = f"eventbus.{point}", [work], sys.audit

    def audited(event: str, *arguments: Any) -> None:
        if event == name and waiting:
            waiting.pop()()
        audit(event, *arguments)

    # Not an audit hook, which stays for the life of the process: with one in Python, threads that
    # start at the same time while coverage is measured fail ("Cannot install a trace function").
    sys.audit = audited  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.audit = audit
    assert not waiting, f"{name} was not reached"


class Died(BaseException):
    """What a killed process does."""


@contextmanager
def death(point: str) -> Iterator[None]:
    """End the work of this thread at `eventbus.<point>`, as a kill would; fail if it is not reached."""

    def die() -> None:
        raise Died(point)

    try:
        with interlude(point, die):
            yield
    except Died:
        return
    raise AssertionError(f"nothing died at {point}")
