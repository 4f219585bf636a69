"""Show what the broker has of what this project needs, and make it so."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_eventbus import transports
from django_eventbus.conf import conf
from django_eventbus.exceptions import EventBusError
from django_eventbus.management.printing_command import PrintingCommand
from django_eventbus.management.worker_command import refuse_broken_configuration
from django_eventbus.transports.contract import Transport
from django_eventbus.transports.rabbitmq import RabbitmqTransport, drawing, report
from django_eventbus.transports.rabbitmq.inquiry import Inquiry
from django_eventbus.transports.rabbitmq.migration import plan_of
from django_eventbus.transports.rabbitmq.survey import Survey, surveys
from django_eventbus.workers import queue_specs


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
        parser.add_argument("--yes", action="store_true", help="Apply without a question.")
        parser.add_argument("--json", action="store_true", help="Print the plan as JSON.")

    def handle(self, *args: Any, **options: Any) -> None:
        for warning in refuse_broken_configuration():
            self.stderr.write(warning)
        try:
            self.run(transports.connect(conf.broker_url), **options)
        except EventBusError as error:
            raise CommandError(str(error)) from error

    def run(self, transport: Transport, **options: Any) -> None:
        specs = queue_specs()
        if options["diagram"]:
            self.stdout.write(drawing.diagram(specs))
        elif not isinstance(transport, RabbitmqTransport):
            self.run_without_broker(transport, **options)
        elif options["definitions"]:
            host = transport.address.virtual_host
            self.stdout.write(json.dumps(drawing.definitions(specs, host), indent=2))
        else:
            with transport.inquiry() as inquiry:
                self.run_plan(inquiry, surveys(inquiry, specs), **options)

    def run_without_broker(self, transport: Transport, **options: Any) -> None:
        if options["definitions"]:
            raise CommandError("BROKER_URL is database://, and no broker takes definitions of it.")
        if options["apply"]:
            transport.declare(queue_specs())
        said = "Bound the queues in the database." if options["apply"] else "Nothing to do."
        self.stdout.write(f"database:// needs nothing declared on a broker. {said}")

    def run_plan(self, inquiry: Inquiry, found: list[Survey], **options: Any) -> None:
        plan = plan_of(found)
        if options["json"]:
            self.stdout.write(json.dumps(report.as_json(found, plan), indent=2))
        else:
            self.stdout.write("\n".join(report.lines(found, plan)))
        if not options["apply"]:
            return
        if conf.topology != "declare":
            raise CommandError(
                f"TOPOLOGY is {conf.topology!r}: what is on the broker is not ours to change."
            )
        if plan.steps and not options["yes"]:
            self.ask(len(plan.steps))
            found = surveys(inquiry, queue_specs())
            if plan_of(found) != plan:
                raise CommandError("The broker has changed meanwhile: look at the plan again.")
        plan.carry_out(inquiry, found)
        if plan.steps and not options["json"]:
            self.stdout.write("Done.")

    def ask(self, number: int) -> None:
        try:
            answer = input(f"Take these {number} steps? [y/N] ")
        except EOFError:
            raise CommandError("Nobody is there to answer: use --yes.") from None
        if answer.strip().lower() not in ("y", "yes"):
            raise CommandError("Nothing was changed.")
