"""What commands on dead letters share: filters, a question before anything is done, JSON."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_eventbus.dry_runs import Forecast
from django_eventbus.exceptions import EventBusError
from django_eventbus.management.printing_command import PrintingCommand
from django_eventbus.management.system_user import system_user
from django_eventbus.management.worker_command import (
    positive,
    refuse_broken_configuration,
    refuse_missing_tables,
)
from django_eventbus.matching import letters_of
from django_eventbus.selections import FILTERS, Selection

_NOTHING = "Nothing is meant by this."
#: Whoever names one of these means it, also if it is ignored for now.
_NAMING = ("ignored", "id", "message_id")


class SelectionCommand(PrintingCommand):
    """A command that does something to the dead letters that its filters mean."""

    requires_system_checks = []
    #: How many were left out, as they are ignored for now; None: not asked.
    ignored: int | None = None

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "filters",
            nargs="*",
            metavar="NAME=VALUE",
            help=f"Which dead letters are meant: {', '.join(FILTERS)}. All of them must hold.",
        )
        parser.add_argument("--limit", type=positive, help="How many at most, the oldest first.")
        parser.add_argument("--by", default="", help="Who does it; the system's user by default.")
        parser.add_argument("--reason", default="", help="Why; for the audit.")
        parser.add_argument("--dry-run", action="store_true", help="Only show what would happen.")
        parser.add_argument("--yes", action="store_true", help="Do not ask.")
        parser.add_argument("--database", default="default", help="Where the dead letters are.")
        parser.add_argument("--json", action="store_true", help="Print the result as JSON.")

    def handle(self, *args: Any, **options: Any) -> None:
        refuse_broken_configuration()
        refuse_missing_tables(options["database"])
        try:
            self.work(self.meant(options), options)
        except EventBusError as error:
            raise CommandError(str(error)) from error

    def meant(self, options: dict[str, Any]) -> Selection:
        """Return what the filters mean: what is ignored for now only if it is named."""
        selection = Selection.from_words(options["filters"])
        if any(term.name in _NAMING for term in selection.terms):
            self.ignored = 0
            return selection
        aside = letters_of(selection.with_terms(ignored="yes"), options["database"])
        self.ignored = aside.redrivable().count()
        return selection.with_terms(ignored="no")

    def work(self, selection: Selection, options: dict[str, Any]) -> None:
        """Do it, and show what came of it."""
        raise NotImplementedError

    def by(self, options: dict[str, Any]) -> str:
        return options["by"] or system_user()

    def confirm(self, question: str, options: dict[str, Any]) -> None:
        """Ask, unless told not to; end the command at anything but yes."""
        if options["yes"]:
            return
        if not sys.stdin.isatty():
            raise CommandError(f"{question} Nobody can answer here: say --yes.")
        if input(f"{question} [y/N] ").strip().lower() not in ("y", "yes"):
            raise CommandError("Nothing was done.")

    def show(self, result: dict[str, Any], lines: list[str], options: dict[str, Any]) -> None:
        if self.ignored is not None:
            result = {**result, "ignored": self.ignored}
        told = [json.dumps(result)] if options["json"] else [*lines, *_ignored(self.ignored or 0)]
        for line in told:
            self.stdout.write(line)


def dead_letters(count: int) -> str:
    """Return the number with its noun."""
    return f"{count:,} dead letter{'' if count == 1 else 's'}"


def discard_as_json(forecast: Forecast) -> dict[str, Any]:
    """Return which a dry run of a discard found, as JSON."""
    return {
        "filter": forecast.selection.query(),
        "count": forecast.count,
        "targets": [
            {"queue": each.queue, "subscription": each.subscription, "type": each.type,
             "count": each.count}
            for each in forecast.targets
        ],
        "staying": forecast.staying,
    }  # fmt: skip


def discard_as_lines(forecast: Forecast) -> list[str]:
    """Return which a dry run of a discard found, as sentences."""
    lines = [
        f"Would discard {each.count:,} of {each.type}, which "
        f"{f'failed in {each.subscription}' if each.subscription else 'reached no subscription'} "
        f"on {each.queue}."
        for each in forecast.targets
    ]
    return [*lines, *_staying(forecast)] or [_NOTHING]


def as_json(forecast: Forecast) -> dict[str, Any]:
    """Return what a dry run found as JSON."""
    return {
        **discard_as_json(forecast),
        "without_subscription": forecast.without_subscription,
        "without_queue": forecast.without_queue,
        "looked_at": forecast.looked_at,
        "already_handled": forecast.already_handled,
        "forgotten": forecast.forgotten,
        "invalid": forecast.invalid,
        "planned": forecast.planned,
    }


def as_lines(forecast: Forecast) -> list[str]:
    """Return what a dry run found as sentences."""
    lines = [
        f"{each.count:,} of {each.type} to {each.subscription or 'any subscription'} on {each.queue}."
        for each in forecast.targets
    ]
    sampled = f" of {forecast.looked_at:,} looked at" if forecast.is_sampled else ""
    counts = {
        f"{forecast.without_subscription:,} have no subscription here: they would be parked again.": (
            forecast.without_subscription
        ),
        f"{forecast.without_queue:,} have a queue that is not this project's.": forecast.without_queue,
        f"{forecast.already_handled:,}{sampled} were handled already: the inbox will skip them.": (
            forecast.already_handled
        ),
        f"{forecast.forgotten:,}{sampled} are older than what the inbox remembers: "
        "they would run, and may have been handled already.": forecast.forgotten,
        f"{forecast.invalid:,}{sampled} have a payload that their handler cannot be given.": (
            forecast.invalid
        ),
        f"{forecast.planned:,}{sampled} are in a plan under way: the second skips them.": (
            forecast.planned
        ),
    }
    lines += [line for line, count in counts.items() if count]
    return [*lines, *_staying(forecast)] or [_NOTHING]


def _staying(forecast: Forecast) -> list[str]:
    return [f"{count:,} are {state} and stay." for state, count in forecast.staying.items()]


def _ignored(count: int) -> list[str]:
    if count == 1:
        return ["1 is ignored for now and stays: say ignored=yes, or its id, to mean it."]
    words = f"{count:,} are ignored for now and stay: say ignored=yes, or their ids, to mean them."
    return [words] if count else []


def whole(text: str) -> int:
    """Accept a whole number from 0 on."""
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def percent(text: str) -> int:
    """Accept a whole number from 0 to 100."""
    if not text.isdigit() or int(text) > 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to 100")
    return int(text)


def above_zero(text: str) -> float:
    """Accept a number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number
