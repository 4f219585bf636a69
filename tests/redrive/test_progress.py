"""How fast a plan may go, and when it has to stop."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django_eventbus.redrive.progress import Outcomes, allowance, is_failing
from tests.support.tables import table

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@dataclass
class Plan:
    rate: float
    paced_at: datetime | None


def ago(seconds):
    return NOW - timedelta(seconds=seconds)


@table(
    ("rate", "since", "most", "number", "used_up_to"),
    [
        (10, 1, 100, 10, 0),
        (10, 0.05, 100, 0, 0.05),
        (10, 0.25, 100, 2, 0.05),
        (10, 1, 4, 4, 0.6),
        (10, 3600, 100, 20, 0),
        (0.1, 3600, 100, 1, 0),
        (0.1, 9, 100, 0, 9),
        (10, 1, -5, 0, 1),
        (1e308, 1, 100, 100, 1),
    ],
)
def test_what_may_go_is_what_the_rate_has_left(rate, since, most, number, used_up_to):
    found = allowance(Plan(rate, ago(since)), NOW, most)

    assert found == (number, ago(used_up_to))


def test_a_rate_is_kept_exactly_over_many_looks():
    plan, sent = Plan(7, NOW), 0
    for tick in range(1, 1001):
        number, plan.paced_at = allowance(plan, NOW + timedelta(milliseconds=37 * tick), 100)
        sent += number

    assert sent == (37 * 7)


@table(
    ("states", "is_complete", "expected"),
    [
        (["failed"] * 3 + ["healed"] * 7, False, True),
        (["failed"] * 2 + ["healed"] * 8, False, False),
        (["failed"] * 9, False, False),
        (["failed"] * 1 + ["healed"] * 1, True, True),
        (["unknown"] * 10, False, True),
        (["skipped"] * 50, True, False),
        ([], True, False),
    ],
)
def test_a_plan_stops_when_more_than_its_share_failed_of_enough(states, is_complete, expected):
    assert is_failing(Outcomes.of(states), 20, is_complete=is_complete) == expected
