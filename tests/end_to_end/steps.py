"""Events of many keys for the ordered subscription of the test project, and what it made of them."""

from __future__ import annotations

import os
import random

from django_eventbus import publish_many
from tests.shop.models import Effect
from tests.support.helpers import eventually

#: What makes a process of the test project have the subscription.
ORDERED = {"EVENTBUS_TEST_ORDERED": "1"}
#: How many consumers are stopped one after another; `make chaos` stops more of them.
STOPS = 20 if os.environ.get("EVENTBUS_TEST_CHAOS_SECONDS") else 4


def publish_steps(number, keys=1, *, fails=(0,), first=0):
    """Publish so many events, in turns of the keys, each to fail as often as one of *fails*."""
    chance = random.Random(number)
    steps = [(str(each % keys), each // keys) for each in range(first, first + number)]
    publish_many(
        [
            ("step.taken", {"key": key, "note": f"{key}:{step}", "fails": chance.choice(fails)})
            for key, step in steps
        ],
        key=lambda step: step[1]["key"],
    )


def effects():
    return Effect.objects.filter(subscription="shop.step")


def taken():
    """Return the steps that have an effect, in the order of their effects."""
    notes = effects().order_by("id").values_list("note", flat=True)
    return [tuple(note.split(":")) for note in notes]


def await_steps(number, timeout=100):
    eventually(
        lambda: effects().count() >= number,
        timeout=timeout,
        message=lambda: str(effects().count()),
    )


def stop_in_turn(start, backlog):
    """
    Stop the older of two consumers again and again while they have a backlog of one key.

    *backlog* events are published for each of them: more than are handled until the next stop.
    """
    workers = [start(), start()]
    await_start(workers)
    for stop in range(STOPS):
        publish_steps(backlog, first=stop * backlog)
        before = effects().count()
        eventually(lambda: effects().count() > before, timeout=30)  # noqa: B023
        oldest = workers.pop(0)
        oldest.terminate()
        workers.append(start())
        assert oldest.wait() == 0
        await_start(workers)
    await_steps(STOPS * backlog)
    assert_in_order(STOPS * backlog)


def await_start(workers):
    """Wait for each, also one that has nothing to do: before that, a signal simply ends it."""
    for each in workers:
        each.wait_for("Consuming")


def assert_in_order(number, keys=1):
    """Each key has each of its steps once, in the order in which they were published."""
    by_key = {}
    for key, step in taken():
        by_key.setdefault(key, []).append(int(step))
    assert by_key == {str(key): list(range(number // keys)) for key in range(keys)}
