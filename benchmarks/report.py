"""Medians, ratios and bars."""

from __future__ import annotations

from collections import defaultdict
from statistics import median

RAW = "raw pika client, 1,000 confirms in flight"
RELAY = "relay: row to confirmed and marked"
OUTBOX_PATTERN = "django-outbox-pattern publisher (STOMP, unconfirmed)"
CONSUMER = "consumer: inbox and one INSERT, 4 threads"
CELERY_SOLO = "Celery worker, late acks, solo"
CELERY_THREADS = "Celery worker, late acks, 4 threads"

#: Ours, theirs (the best of them counts), and at least how many times as fast ours has to be.
ASKED = (
    (RELAY, (RAW,), 0.6),
    (RELAY, (OUTBOX_PATTERN,), 10),
    (CONSUMER, (CELERY_SOLO, CELERY_THREADS), 2),
)
_WIDTH = 30


class Figures:
    """Messages per second of each contestant, by round."""

    def __init__(self) -> None:
        self.rates: dict[str, list[float]] = defaultdict(list)

    def add(self, name: str, rate: float) -> None:
        self.rates[name].append(rate)

    def median(self, name: str) -> float:
        return median(self.rates[name])

    def ratios(self) -> list[tuple[str, str, float, float]]:
        """Return ours, the best of theirs, the ratio, and the one asked for."""
        found = []
        for ours, theirs, asked in ASKED:
            known = [name for name in theirs if name in self.rates]
            if known and ours in self.rates:
                best = max(known, key=self.median)
                found.append((ours, best, self.median(ours) / self.median(best), asked))
        return found

    @property
    def are_as_asked(self) -> bool:
        return all(ratio >= asked for _, _, ratio, asked in self.ratios())

    def summary(self) -> dict[str, object]:
        return {
            "rates": dict(self.rates),
            "medians": {name: self.median(name) for name in self.rates},
            "ratios": [
                {"ours": ours, "theirs": theirs, "ratio": round(ratio, 3), "asked": asked}
                for ours, theirs, ratio, asked in self.ratios()
            ],
        }


def print_table(figures: Figures) -> None:
    """Print a bar for each median and a line for each ratio."""
    fastest = max(map(figures.median, figures.rates))
    print()
    for name, rates in figures.rates.items():
        middle = figures.median(name)
        bar = "█" * max(1, round(_WIDTH * middle / fastest))
        spread = f"{min(rates):,.0f} to {max(rates):,.0f}"
        print(f"{name:<52} {middle:>8,.0f}/s  {bar:<{_WIDTH}}  {spread}")
    print()
    for ours, theirs, ratio, asked in figures.ratios():
        verdict = "as asked" if ratio >= asked else "BELOW what is asked"
        print(f"{ours} = {ratio:.2f} x {theirs} (asked: {asked}): {verdict}")
