"""Re-drive what lies in a broker's DLQ."""

from __future__ import annotations

import getpass
import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_eventbus.broker_dead_letters import BrokerRedrive, find_dead_letter_queue, peek
from django_eventbus.management.worker_command import connected, positive, refuse_missing_tables
from django_eventbus.workers import Crew


class Command(BaseCommand):
    help = "Send messages of a broker's DLQ back to the queues that they belong to."

    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--from-broker", metavar="QUEUE", required=True, help="The queue, or its DLQ."
        )
        parser.add_argument("--limit", type=positive, default=100, help="How many at most.")
        parser.add_argument("--by", default="", help="Who does it; the system's user by default.")
        parser.add_argument("--dry-run", action="store_true", help="Only show what would move.")
        parser.add_argument("--json", action="store_true", help="Print the result as JSON.")

    def handle(self, *args: Any, **options: Any) -> None:
        refuse_missing_tables("default")
        crew = Crew()
        with connected() as transport, crew.stopping_on_signals():
            dlq = find_dead_letter_queue(transport, options["from_broker"])
            if options["dry_run"]:
                found = peek(transport, dlq, options["limit"])
                self._show({"would_move": {each.message.id: each.queue for each in found}}, options)
                return
            by = options["by"] or getpass.getuser()
            result = BrokerRedrive(transport, dlq, by=by, stop=crew.stop).run(options["limit"])
        self._show({"moved": result.moved, "left": result.left}, options)
        if result.left:
            raise CommandError(f"{len(result.left)} messages stay in {dlq.name}.")

    def _show(self, result: dict[str, Any], options: dict[str, Any]) -> None:
        if options["json"]:
            self.stdout.write(json.dumps(result))
            return
        for message_id, queue in result.get("would_move", {}).items():
            self.stdout.write(f"Would move {message_id} to {queue}.")
        for message_id, reason in result.get("left", {}).items():
            self.stdout.write(f"Left {message_id}: {reason}.")
        if "moved" in result:
            self.stdout.write(f"Moved {len(result['moved'])} messages.")
