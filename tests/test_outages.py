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


def failure(operation, *, is_proven=False):
    return DatabaseUnavailable("gone", operation=operation, is_proven=is_proven)


def test_an_outage_is_over_when_everything_that_failed_has_succeeded(heard):
    watch = OutageWatch(None, "consumer")
    for _ in range(3):
        watch.begin(failure("write"))
        watch.begin(failure("publish"))
        watch.end(["receive"])
        watch.end(["publish"])
        watch.end([])
    assert heard == [("database", False, True)]

    watch.end(["write", "receive"])
    watch.end(["write"])

    assert heard == [("database", False, True), ("database", True, True)]
    assert not watch.is_on


def test_a_probe_ends_an_outage_only_if_one_has_failed_or_long_after_it(heard, monkeypatch):
    monkeypatch.setattr(outages, "_PROBE_EVERY", 0)
    watch = OutageWatch(None, "consumer")

    watch.begin(failure("write"))
    watch.probe(lambda operation: True)
    assert watch.is_on, "the server was never away, so its answer proves nothing"
    watch.probe(lambda operation: False)
    watch.probe(lambda operation: True)
    assert not watch.is_on

    watch.begin(failure("write", is_proven=True))
    watch.probe(lambda operation: True)
    assert not watch.is_on

    watch.begin(failure("write"))
    monkeypatch.setattr(outages, "QUIET", 0)
    watch.probe(lambda operation: True)
    assert not watch.is_on
    assert len(heard) == 6


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
