"""Compare the broker with the topology that this project needs, and apply the difference."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_eventbus import transports
from django_eventbus.conf import conf
from django_eventbus.exceptions import EventBusError
from django_eventbus.management.output import PrintingCommand
from django_eventbus.management.worker_command import require_valid_configuration
from django_eventbus.subscriptions.queue_specs import queue_specs
from django_eventbus.transports.contract import Transport
from django_eventbus.transports.rabbitmq import RabbitmqTransport
from django_eventbus.transports.rabbitmq.topology import output
from django_eventbus.transports.rabbitmq.topology.client import TopologyClient
from django_eventbus.transports.rabbitmq.topology.migration import plan_of
from django_eventbus.transports.rabbitmq.topology.queue_state import QueueState, read_queue_states


class Command(PrintingCommand):
    help = "Show or apply the exchanges, queues and bindings that this project needs."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        what = parser.add_mutually_exclusive_group()
        what.add_argument(
            "--plan", action="store_true", help="Show what exists, is missing or differs (default)."
        )
        what.add_argument("--apply", action="store_true", help="Carry out the plan.")
        what.add_argument("--diagram", action="store_true", help="Print a Mermaid diagram.")
        what.add_argument(
            "--definitions", action="store_true", help="Print definitions for the broker to import."
        )
        parser.add_argument("--yes", action="store_true", help="Apply without asking.")
        parser.add_argument("--json", action="store_true", help="Print the plan as JSON.")

    def handle(self, *args: Any, **options: Any) -> None:
        for warning in require_valid_configuration():
            self.stderr.write(warning)
        try:
            self.run(transports.connect(conf.broker_url), **options)
        except EventBusError as error:
            raise CommandError(str(error)) from error

    def run(self, transport: Transport, **options: Any) -> None:
        specs = queue_specs()
        if options["diagram"]:
            self.stdout.write(output.diagram(specs))
        elif not isinstance(transport, RabbitmqTransport):
            self.run_without_broker(transport, **options)
        elif options["definitions"]:
            host = transport.address.virtual_host
            self.stdout.write(json.dumps(output.definitions(specs, host), indent=2))
        else:
            with transport.topology_client() as client:
                self.run_plan(client, read_queue_states(client, specs), **options)

    def run_without_broker(self, transport: Transport, **options: Any) -> None:
        if options["definitions"]:
            raise CommandError(
                "BROKER_URL is database://: there is no broker that could import definitions."
            )
        if options["apply"]:
            transport.declare(queue_specs())
        done = "The queues are bound." if options["apply"] else "There is nothing to do."
        self.stdout.write(f"With database:// there is no broker to declare queues on. {done}")

    def run_plan(self, client: TopologyClient, found: list[QueueState], **options: Any) -> None:
        plan = plan_of(found)
        if options["json"]:
            self.stdout.write(json.dumps(output.as_json(found, plan), indent=2))
        else:
            self.stdout.write("\n".join(output.as_text(found, plan)))
        if not options["apply"]:
            return
        if conf.topology != "declare":
            raise CommandError(
                f"TOPOLOGY is {conf.topology!r}: only 'declare' allows changes to the broker."
            )
        if plan.steps and not options["yes"]:
            self.ask(len(plan.steps))
            found = read_queue_states(client, queue_specs())
            if plan_of(found) != plan:
                raise CommandError(
                    "The broker has changed since the plan was printed. Read the new plan first."
                )
        plan.run(client, found)
        if plan.steps and not options["json"]:
            self.stdout.write("Done.")

    def ask(self, number: int) -> None:
        try:
            steps = "this step" if number == 1 else f"these {number} steps"
            answer = input(f"Carry out {steps}? [y/N] ")
        except EOFError:
            raise CommandError("There is no terminal to ask: use --yes.") from None
        if answer.strip().lower() not in ("y", "yes"):
            raise CommandError("Nothing was changed.")
