"""Say how the bus is doing."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandParser

from django_eventbus.management.printing_command import PrintingCommand
from django_eventbus.management.worker_command import refuse_missing_tables
from django_eventbus.status import look
from django_eventbus.status_report import as_json, as_text
from django_eventbus.workers import Crew

#: Seconds between two looks.
_EVERY = 2.0
_CLEAR = "\x1b[2J\x1b[H"


class Command(PrintingCommand):
    help = "Show what needs doing, throughput, backlogs, queues, workers and outages."

    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--watch", action="store_true", help="Show it again every 2 seconds.")
        parser.add_argument("--json", action="store_true", help="Print one JSON object a look.")

    def handle(self, *args: Any, **options: Any) -> None:
        refuse_missing_tables("default")
        crew = Crew()
        with crew.stopping_on_signals():
            self._show(**options)
            while options["watch"] and not crew.stop.wait(_EVERY):
                self._show(**options)

    def _show(self, **options: Any) -> None:
        status = look()
        if options["json"]:
            self.stdout.write(json.dumps(as_json(status)))
            return
        if options["watch"] and self.stdout.isatty():
            self.stdout.write(_CLEAR, ending="")
        self.stdout.write("\n".join(as_text(status)))
