"""Show, start, pause, resume or cancel a plan."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_eventbus.exceptions import BadPlan
from django_eventbus.management.dead_letter_command import system_user
from django_eventbus.management.output import PrintingCommand, plan_as_json, plan_in_words
from django_eventbus.management.worker_command import positive, require_tables
from django_eventbus.models import Plan
from django_eventbus.redrive import plans


class Command(PrintingCommand):
    help = "Show, start, pause, resume or cancel a plan."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("plan", type=positive, help="The number of the plan.")
        parser.add_argument(
            "verb", nargs="?", choices=Plan.VERBS, help="The change; without it, show the plan."
        )
        parser.add_argument(
            "--by", default="", help="The user for the audit; by default the user of the system."
        )
        parser.add_argument("--database", default="default", help="The database with the plan.")
        parser.add_argument("--json", action="store_true", help="Print the result as JSON.")

    def handle(self, *args: Any, **options: Any) -> None:
        require_tables(options["database"])
        try:
            plan = self._plan(**options)
        except Plan.DoesNotExist:
            raise CommandError(f"There is no plan {options['plan']}.") from None
        except BadPlan as error:
            raise CommandError(str(error)) from error
        words = " ".join(filter(None, (plan_in_words(plan), plan.note_text)))
        self.stdout.write(json.dumps(plan_as_json(plan)) if options["json"] else words)

    def _plan(self, **options: Any) -> Plan:
        key, verb, using = options["plan"], options["verb"], options["database"]
        if not verb:
            return Plan.objects.using(using).get(pk=key)
        return plans.change(key, verb, by=options["by"] or system_user(), using=using)
