"""Remove old rows that are settled."""

from __future__ import annotations

import argparse
import json
import re
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from django_eventbus.durations import seconds
from django_eventbus.management.output import PrintingCommand
from django_eventbus.management.worker_command import require_tables
from django_eventbus.pruning import SHORTEST_AGE, count_prunable, prune


class Command(PrintingCommand):
    """Prune one database."""

    help = "Remove settled events, records and dead letters that are older than a given age."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--older-than", type=age, required=True, help='The age, such as "7d"; at least "1m".'
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="Count the rows, and remove nothing."
        )
        parser.add_argument("--database", default="default", help="The database to prune.")
        parser.add_argument("--json", action="store_true", help="Print the counts as JSON.")

    def handle(self, *args: Any, **options: Any) -> None:
        require_tables(options["database"])
        cutoff = timezone.now() - timedelta(seconds=options["older_than"])
        work = count_prunable if options["dry_run"] else prune
        counts = work(cutoff, using=options["database"])
        if options["json"]:
            self.stdout.write(json.dumps(counts))
            return
        verb = "Would remove" if options["dry_run"] else "Removed"
        for name, count in counts.items():
            # The names are plurals: "minutes of throughput", "queues".
            noun = re.sub(r"s\b", "", name, count=1) if count == 1 else name
            self.stdout.write(f"{verb} {count} {noun}.")


def age(text: str) -> float:
    """Accept a duration of at least a minute."""
    try:
        duration = seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if duration < SHORTEST_AGE:
        raise argparse.ArgumentTypeError(
            'must be at least "1m": younger messages may still be in use'
        )
    return duration
