"""Ping the consumers of the bus."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from collections.abc import Sequence
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_eventbus.conf.parsers import wait
from django_eventbus.durations import label
from django_eventbus.management.commands.consume_events import chosen_queues
from django_eventbus.management.output import PrintingCommand
from django_eventbus.management.worker_command import connected
from django_eventbus.monitoring.ping import RoundTrip, ping

_HEAD = ("QUEUE", "SERVICE", "HOST", "ROUND TRIP")


class Command(PrintingCommand):
    help = "Send a ping to every queue through the exchange, and show the answers and their times."

    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--queue",
            action="append",
            metavar="NAME",
            help="Require an answer from this queue only. The option can be repeated.",
        )
        parser.add_argument(
            "--timeout",
            type=duration,
            default=5.0,
            help="The time to wait for answers, such as 5s.",
        )
        parser.add_argument("--json", action="store_true", help="Print the answers as JSON.")

    def handle(self, *args: Any, **options: Any) -> None:
        with connected() as transport:
            expected = chosen_queues(options["queue"])
            trips = ping(transport, expected, options["timeout"])
        write = self._write_json if options["json"] else self._write_table
        write(trips)
        if silent := [trip.answer.queue for trip in trips if trip.seconds is None]:
            raise CommandError(
                f"No answer within {label(options['timeout'])} from {', '.join(silent)}. "
                "Start consume_events for the queue, or run eventbus_doctor."
            )

    def _write_json(self, trips: Sequence[RoundTrip]) -> None:
        facts = [
            {
                "queue": trip.answer.queue,
                "service": trip.answer.service,
                "host": trip.answer.host,
                "seconds": trip.seconds,
            }
            for trip in trips
        ]
        self.stdout.write(json.dumps(facts))

    def _write_table(self, trips: Sequence[RoundTrip]) -> None:
        table = [_HEAD, *map(_cells, trips)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for line in table:
            cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            self.stdout.write("  ".join(cells).rstrip())


def _cells(trip: RoundTrip) -> tuple[str, str, str, str]:
    answer = trip.answer
    took = "silent" if trip.seconds is None else f"{trip.seconds * 1000:.1f} ms"
    return answer.queue, answer.service or "-", answer.host or "-", took


def duration(text: str) -> float:
    """Accept "5s", or a number of seconds."""
    try:
        return wait(float(text) if text.replace(".", "", 1).isdigit() else text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
