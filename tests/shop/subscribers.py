"""Handlers that do what their event says; used by tests that run processes."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from django_eventbus import GiveUp, RetryLater, subscribe
from tests.shop.models import Effect
from tests.support.helpers import eventually

#: A delay that no tier has.
ODD = 0.15


def fail(event):
    raise ValueError("told to fail")


def fail_once(event):
    if event.meta.attempt == 1:
        raise ValueError("told to fail once")


def give_up(event):
    raise GiveUp("told to give up")


def come_back(event):
    if event.meta.attempt == 1:
        raise RetryLater(after=ODD)


def exit_at_once(event):
    os._exit(7)


def wait_for_file(event):
    Path(event.payload["began"]).touch()
    eventually(Path(event.payload["go_on"]).exists, timeout=60)


def dawdle(event):
    threading.Event().wait(0.02)


ACTS = {
    "dawdle": dawdle,
    "ok": lambda event: None,
    "fail": fail,
    "fail once": fail_once,
    "give up": give_up,
    "come back": come_back,
    "exit": exit_at_once,
    "wait": wait_for_file,
}


@subscribe("act.*", queue="acts", name="shop.act", retry=["50ms", "100ms"])
def act(event):
    """Leave an effect, and do what the event says."""
    Effect.objects.create(event_id=event.meta.id, subscription="shop.act")
    ACTS[event.payload["do"]](event)


@subscribe("act.*", queue="acts", name="shop.witness")
def witness(event):
    """Leave an effect, always: a sibling that nobody's failure may touch."""
    Effect.objects.create(event_id=event.meta.id, subscription="shop.witness")


@subscribe("climb.*", queue="counts", name="shop.climb")
def climb(event):
    """Fail, tier after tier, until a file is there; then leave an effect."""
    if not Path(event.payload["fixed"]).exists():
        raise ValueError("not mended yet")
    Effect.objects.create(event_id=event.meta.id, subscription="shop.climb")


@subscribe("climb.*", queue="counts", name="shop.sibling")
def sibling(event):
    """Leave an effect: on the queue of what fails."""
    Effect.objects.create(event_id=event.meta.id, subscription="shop.sibling")


@subscribe("climb.*", queue="acts", name="shop.neighbour")
def neighbour(event):
    """Leave an effect: on another queue."""
    Effect.objects.create(event_id=event.meta.id, subscription="shop.neighbour")


@subscribe("count.*", queue="counts", name="shop.count")
def count(event):
    """Leave an effect."""
    Effect.objects.create(event_id=event.meta.id, subscription="shop.count")


@subscribe("slow.*", queue="counts", name="shop.forever", timeout="300ms")
def forever(event):
    """Never come back."""
    threading.Event().wait()


if os.environ.get("EVENTBUS_TEST_ORDERED"):
    # Not in every process: an ordered queue has a thread and connections of its own.
    @subscribe(
        "step.*",
        queue="steps",
        name="shop.step",
        ordered=True,
        retry=[os.environ.get("EVENTBUS_TEST_SLOW_STEPS", "50ms"), "100ms"],
    )
    def step(event):
        """Leave an effect that says when it was, unless it is to fail as often."""
        Effect.objects.create(
            event_id=event.meta.id, subscription="shop.step", note=event.payload["note"]
        )
        if event.meta.attempt <= event.payload["fails"]:
            raise ValueError("told to fail")
