"""Run every contestant several times, and print the medians and their ratios."""

from __future__ import annotations

import argparse
import json
import sys

from benchmarks.arena import Arena
from benchmarks.report import Figures, print_table


def main() -> int:
    """Return 1 if --strict was given and a ratio is too low."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--messages",
        type=int,
        default=20_000,
        help="The number of messages for the fast contestants.",
    )
    parser.add_argument(
        "--without-peers", action="store_true", help="Run only this package and the raw client."
    )
    parser.add_argument("--strict", action="store_true", help="Fail if a ratio is too low.")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = Figures()
    with Arena(with_peers=not options.without_peers) as arena:
        for number in range(1, options.rounds + 1):
            for name, rate in arena.round(options.messages):
                figures.add(name, rate)
                print(f"round {number}: {name} {rate:,.0f}/s", file=sys.stderr, flush=True)
    print(json.dumps(figures.summary())) if options.json else print_table(figures)
    return 1 if options.strict and not figures.are_as_asked else 0


if __name__ == "__main__":
    sys.exit(main())
