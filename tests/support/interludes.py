"""Do something at a named audit event of this process: what comes between two steps of another."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_interludes: dict[str, Callable[[], object]] = {}


def _hook(name: str, _: tuple[object, ...]) -> None:
    if work := _interludes.pop(name, None):
        work()


# Once, and for good: an audit hook cannot be removed.
sys.addaudithook(_hook)


@contextmanager
def interlude(point: str, work: Callable[[], object]) -> Iterator[None]:
    """Do *work* when `eventbus.<point>` is reached the first time; fail if it is not."""
    name = f"eventbus.{point}"
    _interludes[name] = work
    yield
    assert _interludes.pop(name, None) is None, f"{name} was not reached"
