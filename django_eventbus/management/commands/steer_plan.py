"""Say how far a plan is; start, pause, resume or cancel it."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_eventbus import plans
from django_eventbus.exceptions import BadPlan
from django_eventbus.management.plan_words import plan_as_json, plan_in_words
from django_eventbus.management.printing_command import PrintingCommand
from django_eventbus.management.system_user import system_user
from django_eventbus.management.worker_command import positive, refuse_missing_tables
from django_eventbus.models import Plan


class Command(PrintingCommand):
    help = "Say how far a plan is; start, pause, resume or cancel it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("plan", type=positive, help="The number of the plan.")
        parser.add_argument("verb", nargs="?", choices=plans.VERBS, help="Without it: only show.")
        parser.add_argument("--by", default="", help="Who does it; the system's user by default.")
        parser.add_argument("--database", default="default", help="Where the plan is.")
        parser.add_argument("--json", action="store_true", help="Print the result as JSON.")

    def handle(self, *args: Any, **options: Any) -> None:
        refuse_missing_tables(options["database"])
        try:
            plan = self._steered(**options)
        except Plan.DoesNotExist:
            raise CommandError(f"There is no plan {options['plan']}.") from None
        except BadPlan as error:
            raise CommandError(str(error)) from error
        words = " ".join(filter(None, (plan_in_words(plan), plan.note)))
        self.stdout.write(json.dumps(plan_as_json(plan)) if options["json"] else words)

    def _steered(self, **options: Any) -> Plan:
        key, using = options["plan"], options["database"]
        if not options["verb"]:
            return Plan.objects.using(using).get(pk=key)
        by = options["by"] or system_user()
        return plans.VERBS[options["verb"]](key, by=by, using=using)
