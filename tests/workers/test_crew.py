"""Loops that stop and fail together."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from django_eventbus.exceptions import EventBusError
from django_eventbus.workers.crew import Crew, LoopFailed


class Refused(EventBusError):
    """Takes so long to describe itself that another loop can fail meanwhile."""

    def __init__(self, meeting: threading.Barrier) -> None:
        self.meeting = meeting

    def __str__(self) -> str:
        with suppress(threading.BrokenBarrierError):
            self.meeting.wait(0.5)
        return "The broker refused the login."


def test_two_loops_that_are_refused_at_once_are_reported_once(caplog):
    crew, meeting = Crew(), threading.Barrier(2)

    def loop() -> None:
        raise Refused(meeting)

    crew.add("relay", loop)
    crew.add("handler", loop)
    with pytest.raises(LoopFailed, match="stopped: The broker refused the login"):
        crew.run()

    assert len([each for each in caplog.messages if "stopped" in each]) == 1
    assert crew.stop.is_set()
