"""Show messages in the DLQ of a broker."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from django_eventbus.durations import label
from django_eventbus.management.output import PrintingCommand
from django_eventbus.management.worker_command import connected, positive
from django_eventbus.redrive.from_broker import DlqMessage, find_dead_letter_queue, peek

_NOTE = (
    "The messages stay in the DLQ, behind messages that were returned to it before. Up to RabbitMQ "
    "4.2, a quorum queue counts this as a delivery; our DLQs have a delivery limit of 2147483647, "
    "so it does no harm."
)


class Command(PrintingCommand):
    help = "Show messages in the DLQ of a broker without removing them."

    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("queue", metavar="QUEUE", help="The name of the queue or of its DLQ.")
        parser.add_argument(
            "--limit", type=positive, default=10, help="The maximum number of messages."
        )
        parser.add_argument("--payload", action="store_true", help="Also show the payloads.")
        parser.add_argument("--json", action="store_true", help="Print one JSON object per line.")

    def handle(self, *args: Any, **options: Any) -> None:
        with connected() as transport:
            dlq = find_dead_letter_queue(transport, options["queue"])
            found = peek(transport, dlq, options["limit"])
        write = self._write_json if options["json"] else self._write_line
        for each in found:
            write(each, with_payload=options["payload"])
        if not options["json"]:
            count = "1 message" if len(found) == 1 else f"{len(found)} messages"
            self.stdout.write(f"Read {count} from {dlq.name}. {_NOTE if found else ''}".strip())

    def _write_json(self, remains: DlqMessage, *, with_payload: bool) -> None:
        facts = remains.facts(timezone.now())
        if with_payload:
            facts["payload"] = remains.message.body.decode(errors="replace")
        self.stdout.write(json.dumps(facts))

    def _write_line(self, remains: DlqMessage, *, with_payload: bool) -> None:
        facts = remains.facts(timezone.now())
        age = "?" if facts["age_seconds"] is None else label(max(facts["age_seconds"], 0))
        self.stdout.write(
            f"{facts['id']} {facts['type']} {facts['reason']}, attempt {facts['attempts']}, "
            f"{age} ago, {facts['bytes']} bytes"
        )
        if with_payload:
            self.stdout.write(remains.message.body.decode(errors="replace"))
