"""The output of commands: lines, plans and progress."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, TextIO

from django.core.management.base import BaseCommand

from django_eventbus.models import Plan
from django_eventbus.redrive.actions import ACTIONS
from django_eventbus.redrive.plans import progress

_WIDTH = 30


def plan_as_json(plan: Plan) -> dict[str, Any]:
    """Return the state and the counts of *plan* for JSON."""
    about = {"plan": plan.pk, "action": plan.action, "state": plan.state}
    return {**about, **progress(plan)}


def no_plan_as_json(action: str) -> dict[str, Any]:
    """Return the same if no dead letter was selected and no plan was made."""
    counts = {str(state): 0 for state in ACTIONS[action].outcomes}
    return {"plan": None, "action": action, "state": None, **counts}


def plan_in_words(plan: Plan) -> str:
    """Return the same as a sentence, without counts of 0."""
    counts = [f"{number:,} {state}" for state, number in progress(plan).items() if number]
    return f"Plan {plan.pk} is {plan.state}: {', '.join(counts)}."


class PrintingCommand(BaseCommand):
    """A command whose output may be closed early, as by `head`."""

    def run_from_argv(self, argv: list[str]) -> None:
        try:
            try:
                super().run_from_argv(argv)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:
            # Otherwise Python would flush it once more at the end, and complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(128 + signal.SIGPIPE) from None


class ProgressBar:
    """A progress bar on one line of a terminal."""

    def __init__(self, stream: TextIO, total: int) -> None:
        self.stream = stream
        self.total = total
        self.is_shown = stream.isatty()
        self._longest = 0

    def show(self, done: int, words: str = "") -> None:
        if not self.is_shown:
            return
        share = min(done / self.total, 1) if self.total else 1
        bar = "█" * round(share * _WIDTH)
        line = f"{bar:░<{_WIDTH}} {done:,} of {self.total:,} {words}".rstrip()
        self._longest = max(self._longest, len(line))
        self.stream.write(f"\r{line:<{self._longest}}")
        self.stream.flush()

    def end(self) -> None:
        if self.is_shown:
            self.stream.write("\n")
