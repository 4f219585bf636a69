"""Intervals."""

from __future__ import annotations

from django_eventbus.durations import Throttle
from tests.support.helpers import eventually


def test_an_interval_is_due_at_once_and_then_not_for_a_while():
    interval = Throttle(0.05)

    assert interval.is_due()
    assert not interval.is_due()
    eventually(interval.is_due, timeout=5)


def test_without_a_length_it_is_always_due():
    interval = Throttle(0)

    assert all(interval.is_due() for _ in range(3))
