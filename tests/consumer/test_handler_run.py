"""Many run together, or one runs alone."""

from __future__ import annotations

import threading

import pytest

from django_eventbus.consumer.handler_run import Isolation
from django_eventbus.exceptions import Busy
from tests.support.helpers import eventually
from tests.support.tables import table


def started(target, *args):
    thread = threading.Thread(target=target, args=args, daemon=True)
    thread.start()
    return thread


def hold(block, inside: threading.Event, leave: threading.Event):
    with block():
        inside.set()
        leave.wait(10)


def test_many_run_together():
    isolation = Isolation()
    meeting = threading.Barrier(4)

    def meet():
        with isolation.together():
            meeting.wait(10)

    threads = [started(meet) for _ in range(4)]

    for thread in threads:
        thread.join(10)
    assert not meeting.broken
    assert not any(thread.is_alive() for thread in threads)


def test_one_that_runs_alone_waits_for_the_others():
    isolation = Isolation()
    inside, leave, alone = threading.Event(), threading.Event(), threading.Event()
    crowd = started(hold, isolation.together, inside, leave)
    assert inside.wait(10)

    loner = started(hold, isolation.alone, alone, leave)

    assert not alone.wait(0.05)
    leave.set()
    assert alone.wait(10)
    crowd.join(10)
    loner.join(10)


def test_nobody_enters_while_one_is_alone_or_waits_to_be():
    isolation = Isolation()
    leave, entered = threading.Event(), threading.Event()

    with isolation.together():
        loner = started(hold, isolation.alone, threading.Event(), leave)
        eventually(lambda: isolation._alone)
        latecomer = started(hold, isolation.together, entered, leave)
        assert not entered.wait(0.05)

    leave.set()
    assert entered.wait(10)
    loner.join(10)
    latecomer.join(10)


def test_two_are_never_alone_at_once():
    isolation = Isolation()
    first, second, leave = threading.Event(), threading.Event(), threading.Event()
    threads = [started(hold, isolation.alone, first, leave)]
    assert first.wait(10)

    threads.append(started(hold, isolation.alone, second, leave))

    assert not second.wait(0.05)
    leave.set()
    assert second.wait(10)
    for thread in threads:
        thread.join(10)


@table("way", ["together", "alone"])
def test_a_failure_inside_lets_the_next_one_in(way):
    isolation = Isolation()

    with pytest.raises(ZeroDivisionError), getattr(isolation, way)():
        _ = 1 / 0

    with isolation.alone():
        pass
    with isolation.together():
        pass


def test_one_who_is_to_run_alone_does_not_wait_for_ever_nor_hold_up_the_others():
    isolation = Isolation(patience=0.05)

    with isolation.together():
        with pytest.raises(Busy), isolation.alone():
            pass
        with isolation.together():
            pass
