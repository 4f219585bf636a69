"""Durations as people write them."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_eventbus.durations import label, rough, seconds
from tests.support.tables import table

HUNDRED_YEARS = 36_500 * 86_400


@table(
    ("written", "expected"),
    [
        ("250ms", 0.25),
        ("30s", 30),
        ("5m", 5 * 60),
        ("2h", 2 * 3600),
        ("7d", 7 * 86400),
        ("1.5h", 1.5 * 3600),
        (" 30 s ", 30),
        ("0s", 0),
        (0, 0),
        (90, 90),
        (0.5, 0.5),
        (timedelta(minutes=5), 300),
        (timedelta(0), 0),
        ("36500d", HUNDRED_YEARS),
    ],
)
def test_a_duration_is_text_with_a_unit_or_seconds_or_a_timedelta(written, expected):
    assert seconds(written) == expected
    assert isinstance(seconds(written), float)


@table(
    "written",
    [
        "", "5", "s", "-1s", "1e3s", ".5s", "5 minutes", "5M", "1m30s", "٣s", "30s\n1",
        "9" * 400 + "s", "36501d",
        -1, math.nan, math.inf, -math.inf, 1e300, 10**400, 10**5000, -(10**5000),
        True, None, Decimal(3), [30], timedelta(seconds=-1), timedelta.max,
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_the_ways_to_write_it(written):
    with pytest.raises(ValueError, match='write "30s", "5m", "2h", "7d", seconds, or a timedelta'):
        seconds(written)


def test_a_refusal_stays_short_however_long_the_value_is():
    with pytest.raises(ValueError, match="is not a duration") as refusal:
        seconds("x" * 100_000)

    assert len(str(refusal.value)) < 300


@table(
    ("duration", "expected"),
    [
        (0, "0s"),
        (0.0001, "0s"),
        (0.25, "250ms"),
        (1, "1s"),
        (1.001, "1001ms"),
        (59, "59s"),
        (60, "1m"),
        (90, "90s"),
        (5400, "90m"),
        (86_400, "1d"),
        (86_399.999, "86399999ms"),
        (HUNDRED_YEARS, "36500d"),
    ],
)
def test_a_label_uses_the_largest_unit_that_keeps_it_whole(duration, expected):
    assert label(duration) == expected


@table(
    ("duration", "expected"),
    [(-1, "0s"), (0.9, "0s"), (119, "119s"), (121, "2m"), (7300, "2h"), (200_000, "2d")],
)
def test_a_rough_duration_is_cut_to_its_largest_unit(duration, expected):
    assert rough(duration) == expected


@settings(deadline=None, max_examples=200)
@given(st.integers(0, HUNDRED_YEARS * 1000))
def test_a_label_reads_back_as_the_same_duration_and_fits_its_column(milliseconds):
    written = label(milliseconds / 1000)

    assert seconds(written) == pytest.approx(milliseconds / 1000, abs=0.0005)
    assert len(written) <= 20
