"""Throughput and trends as SVG, drawn on the server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.formats import number_format
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from django_eventbus.models.monitoring import COUNTED
from django_eventbus.monitoring.status_values import ThroughputBucket

WIDTH, HEIGHT = 240, 48
NAMES: dict[str, str | Promise] = {
    "published": _("Published"),
    "handled": _("Handled"),
    "retried": _("Retried"),
    "parked": _("Parked"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """The chart of one count over time."""

    name: str
    title: str | Promise
    #: The bars, as the path of an SVG of WIDTH by HEIGHT.
    path: str
    #: The same as text.
    words: str


def plots_of(buckets: Sequence[ThroughputBucket], words: str) -> list[Plot]:
    """Return a plot for each kind of count, each with its own scale."""
    return [_plot(name, [getattr(bucket, name) for bucket in buckets], words) for name in COUNTED]


def _plot(name: str, counts: Sequence[int], words: str) -> Plot:
    extent = sum(counts), max(counts, default=0)
    total, highest = (number_format(each, force_grouping=True) for each in extent)
    return Plot(
        name=name,
        title=NAMES[name],
        path=path_of(counts),
        words=words % {"total": total, "highest": highest},
    )


def path_of(counts: Sequence[int]) -> str:
    """Return the path of a bar for each of *counts*, scaled to the highest."""
    highest, step = max([1, *counts]), WIDTH / max(1, len(counts))
    bars = []
    for place, count in enumerate(counts):
        if count:
            # Never less than a line: one among a thousand stays visible.
            top = HEIGHT - max(count / highest * HEIGHT, 1.5)
            left, right = place * step, place * step + step * 0.85
            bars.append(f"M{left:.1f},{HEIGHT}V{top:.1f}H{right:.1f}V{HEIGHT}Z")
    return "".join(bars)


TREND_WIDTH, TREND_HEIGHT = 96, 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar of the trend, in the units of its SVG."""

    x: float
    y: float
    width: float
    height: float


def bars_of(counts: list[int]) -> list[Bar]:
    """Return a bar for each count, scaled to the highest."""
    highest, step = max([1, *counts]), TREND_WIDTH / max(1, len(counts))
    return [
        Bar(
            x=round(at * step, 1),
            y=TREND_HEIGHT - height,
            width=round(step * 0.8, 1),
            height=height,
        )
        for at, height in enumerate(_height(count, highest) for count in counts)
    ]


def _height(count: int, highest: int) -> float:
    # Never less than a line: one among a thousand stays visible.
    return max(round(count / highest * TREND_HEIGHT, 1), 1.5) if count else 0
