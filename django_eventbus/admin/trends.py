"""A trend as a small plot, drawn on the server."""

from __future__ import annotations

from dataclasses import dataclass

WIDTH, HEIGHT = 96, 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One span of the trend, in the units of the drawing."""

    x: float
    y: float
    width: float
    height: float


def bars_of(counts: list[int]) -> list[Bar]:
    """Return a bar for each count, as high as it is among the others."""
    highest, step = max([1, *counts]), WIDTH / max(1, len(counts))
    return [
        Bar(x=round(at * step, 1), y=HEIGHT - height, width=round(step * 0.8, 1), height=height)
        for at, height in enumerate(_height(count, highest) for count in counts)
    ]


def _height(count: int, highest: int) -> float:
    # Never less than a line: one among a thousand is seen too.
    return max(round(count / highest * HEIGHT, 1), 1.5) if count else 0
