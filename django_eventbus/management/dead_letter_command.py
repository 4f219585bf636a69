"""The base of commands that select dead letters."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import sys
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_eventbus.dead_letters.filters import FILTER_NAMES
from django_eventbus.dead_letters.query import matching
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.exceptions import EventBusError
from django_eventbus.management.output import PrintingCommand
from django_eventbus.management.worker_command import (
    positive,
    require_tables,
    require_valid_configuration,
)
from django_eventbus.redrive.dry_runs import Forecast

_NOTHING = "No dead letters match this filter."
#: With one of these filters, dead letters that are ignored for now are selected too.
_NAMING = ("ignored", "id", "message_id")


def system_user() -> str:
    """Return the name of the user, or the user id if there is no name, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


class DeadLetterCommand(PrintingCommand):
    """A command that changes the dead letters that its filters select."""

    requires_system_checks = []
    #: The number of dead letters that were left out because they are ignored for now.
    ignored: int | None = None

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "filters",
            nargs="*",
            metavar="NAME=VALUE",
            help=f"Filters of dead letters: {', '.join(FILTER_NAMES)}. All of them must match.",
        )
        parser.add_argument(
            "--limit", type=positive, help="The maximum number of dead letters, the oldest first."
        )
        parser.add_argument(
            "--by", default="", help="The user for the audit; by default the user of the system."
        )
        parser.add_argument("--reason", default="", help="The reason for the audit.")
        parser.add_argument(
            "--dry-run", action="store_true", help="Show what would happen, and change nothing."
        )
        parser.add_argument("--yes", action="store_true", help="Do not ask for confirmation.")
        parser.add_argument(
            "--database", default="default", help="The database with the dead letters."
        )
        parser.add_argument("--json", action="store_true", help="Print the result as JSON.")

    def handle(self, *args: Any, **options: Any) -> None:
        require_valid_configuration()
        require_tables(options["database"])
        try:
            self.work(self.meant(options), options)
        except EventBusError as error:
            raise CommandError(str(error)) from error

    def meant(self, options: dict[str, Any]) -> Selection:
        """Return the selection of the filters, without dead letters that are ignored for now."""
        selection = Selection.from_words(options["filters"])
        if any(term.name in _NAMING for term in selection.terms):
            self.ignored = 0
            return selection
        aside = matching(selection.with_terms(ignored="yes"), options["database"])
        self.ignored = aside.redrivable().count()
        return selection.with_terms(ignored="no")

    def work(self, selection: Selection, options: dict[str, Any]) -> None:
        """Run the command for *selection* and show the result."""
        raise NotImplementedError

    def by(self, options: dict[str, Any]) -> str:
        return options["by"] or system_user()

    def confirm(self, question: str, options: dict[str, Any]) -> None:
        """Ask for confirmation unless --yes is given; end the command unless the answer is yes."""
        if options["yes"]:
            return
        if not sys.stdin.isatty():
            raise CommandError(f"{question} There is no terminal to ask: use --yes.")
        if input(f"{question} [y/N] ").strip().lower() not in ("y", "yes"):
            raise CommandError("Nothing was done.")

    def show(self, result: dict[str, Any], lines: list[str], options: dict[str, Any]) -> None:
        if self.ignored is not None:
            result = {**result, "ignored": self.ignored}
        shown = [json.dumps(result)] if options["json"] else [*lines, *_ignored(self.ignored or 0)]
        for line in shown:
            self.stdout.write(line)


def dead_letters(count: int) -> str:
    """Return the count with its noun in the singular or plural."""
    return f"{count:,} dead letter{'' if count == 1 else 's'}"


def discard_as_json(forecast: Forecast) -> dict[str, Any]:
    """Return the result of a dry run of a discard for JSON."""
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
    """Return the result of a dry run of a discard as sentences."""
    lines = [
        f"Would discard {each.count:,} of {each.type}, which "
        f"{f'failed in {each.subscription}' if each.subscription else 'reached no subscription'} "
        f"on {each.queue}."
        for each in forecast.targets
    ]
    return [*lines, *_staying(forecast)] or [_NOTHING]


def as_json(forecast: Forecast) -> dict[str, Any]:
    """Return the result of a dry run for JSON."""
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
    """Return the result of a dry run as sentences."""
    lines = [
        f"Would re-drive {each.count:,} of {each.type} to "
        f"{each.subscription or 'any subscription'} on {each.queue}."
        for each in forecast.targets
    ]
    sample = f" of {forecast.looked_at:,} checked" if forecast.is_sampled else ""
    lines += [
        *_counted(
            forecast.without_subscription,
            "has no subscription in this project and would be parked again.",
            "have no subscription in this project and would be parked again.",
        ),
        *_counted(
            forecast.without_queue,
            "has a queue that is not this project's.",
            "have a queue that is not this project's.",
        ),
        *_counted(
            forecast.already_handled,
            "was handled already: the inbox will skip it.",
            "were handled already: the inbox will skip them.",
            sample,
        ),
        *_counted(
            forecast.forgotten,
            "is older than the records of the inbox: it would run, and may have been handled "
            "already.",
            "are older than the records of the inbox: they would run, and may have been handled "
            "already.",
            sample,
        ),
        *_counted(
            forecast.invalid,
            "has a payload that its handler does not accept.",
            "have a payload that their handlers do not accept.",
            sample,
        ),
        *_counted(
            forecast.planned,
            "is also in another plan: the later plan skips it.",
            "are also in another plan: the later plan skips them.",
            sample,
        ),
    ]
    return [*lines, *_staying(forecast)] or [_NOTHING]


def _counted(count: int, singular: str, plural: str, sample: str = "") -> list[str]:
    return [f"{count:,}{sample} {singular if count == 1 else plural}"] if count else []


def _staying(forecast: Forecast) -> list[str]:
    return [
        f"{count:,} {'is' if count == 1 else 'are'} {state} and will not be changed."
        for state, count in forecast.staying.items()
    ]


def _ignored(count: int) -> list[str]:
    return _counted(
        count,
        "is ignored for now and not included. Use ignored=yes, or its id, to include it.",
        "are ignored for now and not included. Use ignored=yes, or their ids, to include them.",
    )


def whole(text: str) -> int:
    """Accept a whole number of 0 or more."""
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
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
