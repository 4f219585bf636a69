"""An outage is waited for, announced once at each end, and counted by its kind."""

from __future__ import annotations

import threading

import pytest

from django_eventbus import outages, signals
from django_eventbus.exceptions import BrokerUnavailable, DatabaseUnavailable
from django_eventbus.outages import OutageWatch


class Stop(threading.Event):
    """Never set; keeps how long it was asked to wait instead of waiting."""

    def __init__(self):
        super().__init__()
        self.waits = []

    def wait(self, timeout=None):
        self.waits.append(timeout)
        return False


@pytest.fixture
def heard():
    heard = []

    def hear(sender, kind, over, seconds, **kwargs):
        heard.append((kind, over, seconds >= 0))

    signals.outage.connect(hear)
    yield heard
    signals.outage.disconnect(hear)


def failing(*errors):
    """Return work that raises each of *errors* in turn, and then succeeds."""
    left = iter(errors)

    def work():
        for error in left:
            raise error

    return work


def test_waits_grow_between_their_bounds_with_jitter(monkeypatch):
    monkeypatch.setattr(outages, "OUTAGE_WAIT", (1.0, 4.0))
    stop = Stop()

    OutageWatch(None, "relay").succeed(failing(*[BrokerUnavailable("gone")] * 5), stop)

    for wait, longest in zip(stop.waits, (1, 2, 4, 4, 4), strict=True):
        assert longest / 2 <= wait <= longest
    assert len(set(stop.waits)) == 5


def test_an_outage_is_announced_and_logged_once_at_each_end(heard, caplog):
    errors = [BrokerUnavailable("gone", kind="io"), *[BrokerUnavailable("gone")] * 2]
    watch = OutageWatch(None, "relay")

    watch.succeed(failing(*errors), Stop())
    watch.succeed(failing(), Stop())

    assert heard == [("io", False, True), ("io", True, True)]
    assert caplog.text.count("Outage: gone Waiting for it to end.") == 1
    assert caplog.text.count("The outage is over after") == 1


def test_errors_are_counted_by_their_kind():
    before = outages.errors.copy()
    kinds = ["connection", "channel", "io", "setup", "blocked", "io"]
    errors = [BrokerUnavailable("gone", kind=kind) for kind in kinds]

    OutageWatch(None, "relay").succeed(failing(*errors, DatabaseUnavailable("gone")), Stop())

    counted = outages.errors - before
    assert counted == {
        "connection": 1,
        "channel": 1,
        "io": 2,
        "setup": 1,
        "blocked": 1,
        "database": 1,
    }
