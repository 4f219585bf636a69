"""Examine the bus."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_eventbus.examination import examine
from django_eventbus.management.printing_command import PrintingCommand
from django_eventbus.management.worker_command import connected, refuse_missing_tables
from django_eventbus.workers import queue_specs


class Command(PrintingCommand):
    help = "Look for what would lose messages or keep them from arriving."

    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="Print the findings as JSON.")

    def handle(self, *args: Any, **options: Any) -> None:
        refuse_missing_tables("default")
        with connected() as transport:
            found = examine(transport, queue_specs())
        errors = [each for each in found if each.severity == "error"]
        if options["json"]:
            self.stdout.write(json.dumps([each.as_dict() for each in found]))
        else:
            for each in found:
                self.stdout.write(f"{each.severity.upper()}: {each.what}\n    {each.remedy}")
        if errors:
            raise CommandError(f"{len(errors)} findings lose messages or keep them from arriving.")
        if not options["json"]:
            self.stdout.write("Nothing was found that loses messages.")
