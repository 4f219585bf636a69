"""Publish the events of the outbox to the broker."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from django_eventbus.conf import conf
from django_eventbus.management.worker_command import WorkerCommand, positive
from django_eventbus.models import Worker
from django_eventbus.monitoring.heartbeat import this_process
from django_eventbus.outbox.relay import Relay
from django_eventbus.workers.loops import RelayLoop


class Command(WorkerCommand):
    """Relay until stopped."""

    help = "Publish the events of the outbox, with confirms, until stopped."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--once", action="store_true", help="Publish the events that are ready, then exit."
        )
        parser.add_argument("--batch-size", type=positive, help="The number of rows per batch.")
        parser.add_argument("--database", default="default", help="The database of the outbox.")
        super().add_arguments(parser)

    def worker(self, **options: Any) -> Worker:
        return this_process(Worker.Kind.RELAY, [])

    def wire(self, **options: Any) -> str:
        relay = Relay(self.transport.publisher(), options["database"], options["batch_size"])
        loop = RelayLoop(relay, self.crew.stop, once=options["once"])
        self.crew.add("relay", loop.run)
        return f"Relaying the outbox of {options['database']!r} to {conf.events_exchange}."
