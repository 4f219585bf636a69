"""Celery tasks that relay, consume and prune, and a schedule for Celery beat."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from celery import shared_task

from django_eventbus.durations import Duration, seconds

#: Seconds after which a run ends; the next run continues.
_WITHIN = 60.0
#: The default for seconds between two runs, from which the status recognizes a missing run.
_EVERY = 60.0


def _task(work: Callable[..., object]) -> Any:
    return shared_task(name=f"django_eventbus.{work.__name__}", ignore_result=True)(work)


@_task
def relay(using: str = "default", within: float = _WITHIN, every: float = _EVERY) -> int:
    """Publish the ready rows in the outbox of *using*; return their number."""
    relayed: int = _runs().relay_ready(using, within, every)
    return relayed


@_task
def consume(within: float = _WITHIN, every: float = _EVERY) -> None:
    """Handle the due messages in the queues of this service, one after the other."""
    _runs().consume_due(within, every)


@_task
def prune(older_than: Duration = "30d", using: str = "default") -> dict[str, int]:
    """Remove settled rows older than *older_than*; return how many of each kind."""
    counts: dict[str, int] = _runs().prune_settled(older_than, using)
    return counts


def _runs() -> Any:
    # Not at the top: a project's celery.py imports this before Django's apps are loaded.
    from django_eventbus.contrib import celery_runs

    return celery_runs


def beat_schedule(
    *,
    relay: Duration | None = "5s",
    consume: Duration | None = "5s",
    prune: Duration | None = "1d",
    older_than: Duration = "30d",
    using: str = "default",
) -> dict[str, dict[str, Any]]:
    """
    Return entries for Celery's `beat_schedule`: how often each task runs; None leaves it out.

    In whole seconds, which is what django-celery-beat can store.
    """
    plan: dict[str, tuple[Duration | None, dict[str, Any]]] = {
        "relay": (relay, {"using": using, **_interval_argument(relay)}),
        "consume": (consume, _interval_argument(consume)),
        "prune": (prune, {"older_than": seconds(older_than), "using": using}),
    }
    return {
        f"eventbus-{name}": _entry(name, every, arguments)
        for name, (every, arguments) in plan.items()
        if every is not None
    }


def _interval_argument(every: Duration | None) -> dict[str, float]:
    """Return the interval as an argument of the task, so that the status notices a missing run."""
    return {} if every is None else {"every": seconds(every)}


def _entry(name: str, every: Duration, arguments: dict[str, Any]) -> dict[str, Any]:
    interval = seconds(every)
    if interval < 1 or interval % 1:
        raise ValueError(f"{name}={every!r} is not a whole number of seconds")
    return {
        "task": f"django_eventbus.{name}",
        "schedule": timedelta(seconds=interval),
        "kwargs": arguments,
        # A task that no worker received before the next one is due is not needed.
        "options": {"expires": int(interval)},
    }
