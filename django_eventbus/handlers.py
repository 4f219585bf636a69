"""What a handler may return. Pure."""

from __future__ import annotations

import inspect


def refuse_unfinished(returned: object) -> None:
    """Raise TypeError for what looks like the handler's work, still to be done."""
    if inspect.isawaitable(returned) or inspect.isgenerator(returned):
        if inspect.iscoroutine(returned):
            returned.close()
        raise TypeError("the handler returned a coroutine or a generator, which nobody runs")
    if isinstance(returned, BaseException):
        raise TypeError(f"the handler returned {type(returned).__name__} instead of raising it")
