"""Waiting for something to become true: the only place that sleeps; and our pytest plugin."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import TypeVar

Value = TypeVar("Value")

# Sequences go on after a rollback, so a small number may be a row of this very test.
NO_SUCH_ID = 2**62


def eventually(
    condition: Callable[[], Value],
    *,
    timeout: float = 10,
    message: str | Callable[[], str] = "",
    interval: float = 0.05,
) -> Value:
    """Return the first true value of *condition*; fail once *timeout* seconds have passed."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            said = message() if callable(message) else message
            raise AssertionError(f"Not within {timeout} s. {said or f'Last value: {value!r}'}")
        time.sleep(interval)


def plugin_arguments() -> list[str]:
    """Return what makes pytest load our plugin, which an installation does by itself."""
    installed = entry_points(group="pytest11")
    module = "django_eventbus.testing.plugin"
    return [] if any(each.value == module for each in installed) else ["-p", module]
