"""Look into a broker's DLQ."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from django_eventbus.broker_dead_letters import Remains, find_dead_letter_queue, peek
from django_eventbus.durations import label
from django_eventbus.management.printing_command import PrintingCommand
from django_eventbus.management.worker_command import connected, positive

_NOTE = (
    "They stay in the DLQ, behind what was returned to it before. A quorum queue counts this as a "
    "delivery, up to RabbitMQ 4.2; our DLQs have a limit of 2147483647, so that it does no harm."
)


class Command(PrintingCommand):
    help = "Show messages in a broker's DLQ without taking them."

    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("queue", metavar="QUEUE", help="The queue, or its DLQ.")
        parser.add_argument("--limit", type=positive, default=10, help="How many at most.")
        parser.add_argument("--payload", action="store_true", help="Show the payloads too.")
        parser.add_argument("--json", action="store_true", help="Print one JSON object a line.")

    def handle(self, *args: Any, **options: Any) -> None:
        with connected() as transport:
            dlq = find_dead_letter_queue(transport, options["queue"])
            found = peek(transport, dlq, options["limit"])
        write = self._write_json if options["json"] else self._write_line
        for each in found:
            write(each, with_payload=options["payload"])
        if not options["json"]:
            self.stdout.write(f"{len(found)} of {dlq.name}. {_NOTE if found else ''}".strip())

    def _write_json(self, remains: Remains, *, with_payload: bool) -> None:
        facts = remains.facts(timezone.now())
        if with_payload:
            facts["payload"] = remains.message.body.decode(errors="replace")
        self.stdout.write(json.dumps(facts))

    def _write_line(self, remains: Remains, *, with_payload: bool) -> None:
        facts = remains.facts(timezone.now())
        age = "?" if facts["age_seconds"] is None else label(max(facts["age_seconds"], 0))
        self.stdout.write(
            f"{facts['id']} {facts['type']} {facts['reason']}, attempt {facts['attempts']}, "
            f"{age} ago, {facts['bytes']} bytes"
        )
        if with_payload:
            self.stdout.write(remains.message.body.decode(errors="replace"))
