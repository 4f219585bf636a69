"""Throughput as plots that are drawn on the server. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.formats import number_format
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from django_eventbus.figures import Span
from django_eventbus.models.throughput import COUNTED

WIDTH, HEIGHT = 240, 48

NAMES: dict[str, str | Promise] = {
    "published": _("Published"),
    "handled": _("Handled"),
    "retried": _("Retried"),
    "parked": _("Parked"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """One figure over some time."""

    name: str
    title: str | Promise
    #: The bars, as the path of an SVG of WIDTH by HEIGHT.
    path: str
    #: The same in a sentence.
    words: str


def plots_of(spans: Sequence[Span], words: str) -> list[Plot]:
    """Return a plot for each thing that is counted: each with a scale of its own."""
    return [_plot(name, [getattr(span, name) for span in spans], words) for name in COUNTED]


def _plot(name: str, counts: Sequence[int], words: str) -> Plot:
    total, highest = (number_format(each, force_grouping=True) for each in _extent(counts))
    return Plot(
        name=name,
        title=NAMES[name],
        path=path_of(counts),
        words=words % {"total": total, "highest": highest},
    )


def _extent(counts: Sequence[int]) -> tuple[int, int]:
    return sum(counts), max(counts, default=0)


def path_of(counts: Sequence[int]) -> str:
    """Draw a bar for each of *counts*, as high as it is among the others."""
    highest, step = max([1, *counts]), WIDTH / max(1, len(counts))
    bars = []
    for place, count in enumerate(counts):
        if count:
            # Never less than a line: one among a thousand is seen too.
            top = HEIGHT - max(count / highest * HEIGHT, 1.5)
            left, right = place * step, place * step + step * 0.85
            bars.append(f"M{left:.1f},{HEIGHT}V{top:.1f}H{right:.1f}V{HEIGHT}Z")
    return "".join(bars)
