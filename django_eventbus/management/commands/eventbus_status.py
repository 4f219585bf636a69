"""Show the status of the bus."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandParser

from django_eventbus.management.output import PrintingCommand
from django_eventbus.management.status_output import as_json, as_text
from django_eventbus.management.worker_command import require_tables
from django_eventbus.monitoring.status import read_status
from django_eventbus.workers.crew import Crew

#: Seconds between two outputs.
_EVERY = 2.0
_CLEAR = "\x1b[2J\x1b[H"


class Command(PrintingCommand):
    help = "Show problems, throughput, backlogs, queues, workers and outages."

    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--watch", action="store_true", help="Show the status every 2 seconds.")
        parser.add_argument("--json", action="store_true", help="Print one JSON object each time.")

    def handle(self, *args: Any, **options: Any) -> None:
        require_tables("default")
        crew = Crew()
        with crew.stopping_on_signals():
            self._show(**options)
            while options["watch"] and not crew.stop.wait(_EVERY):
                self._show(**options)

    def _show(self, **options: Any) -> None:
        status = read_status()
        if options["json"]:
            self.stdout.write(json.dumps(as_json(status)))
            return
        if options["watch"] and self.stdout.isatty():
            self.stdout.write(_CLEAR, ending="")
        self.stdout.write("\n".join(as_text(status)))
