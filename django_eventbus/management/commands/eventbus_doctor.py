"""Diagnose the bus."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_eventbus.management.output import PrintingCommand
from django_eventbus.management.worker_command import connected, require_tables
from django_eventbus.monitoring.doctor import diagnose
from django_eventbus.subscriptions.queue_specs import queue_specs


class Command(PrintingCommand):
    help = "Report problems that lose messages or keep them from arriving."

    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="Print the problems as JSON.")

    def handle(self, *args: Any, **options: Any) -> None:
        require_tables("default")
        with connected() as transport:
            found = diagnose(transport, queue_specs())
        errors = [each for each in found if each.severity == "error"]
        if options["json"]:
            self.stdout.write(json.dumps([each.as_dict() for each in found]))
        else:
            for each in found:
                self.stdout.write(f"{each.severity.upper()}: {each.text}\n    {each.remedy}")
        if errors:
            raise CommandError(
                "1 problem loses messages or keeps them from arriving."
                if len(errors) == 1
                else f"{len(errors)} problems lose messages or keep them from arriving."
            )
        if not options["json"]:
            self.stdout.write("No problem that loses messages was found.")
