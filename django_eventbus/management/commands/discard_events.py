"""Discard dead letters by a plan."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_eventbus.dead_letters.selection import Selection
from django_eventbus.management.dead_letter_command import (
    DeadLetterCommand,
    above_zero,
    dead_letters,
    discard_as_json,
    discard_as_lines,
    whole,
)
from django_eventbus.management.output import (
    ProgressBar,
    no_plan_as_json,
    plan_as_json,
    plan_in_words,
)
from django_eventbus.models import Plan
from django_eventbus.redrive import plans
from django_eventbus.redrive.discards import run_to_end, start_plan, unpaced
from django_eventbus.redrive.dry_runs import dry_run


class Command(DeadLetterCommand):
    help = "Discard dead letters. They can be restored in the admin."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--canary", type=whole, default=0, help="Pause after this number of dead letters."
        )
        parser.add_argument(
            "--rate",
            type=above_zero,
            help="The number of dead letters per second; unlimited by default.",
        )

    def work(self, selection: Selection, options: dict[str, Any]) -> None:
        using = options["database"]
        forecast = dry_run(selection, using=using, limit=options["limit"])
        if options["dry_run"] or not forecast.count:
            is_dry = options["dry_run"]
            found = discard_as_json(forecast) if is_dry else no_plan_as_json(Plan.Action.DISCARD)
            self.show(found, discard_as_lines(forecast), options)
            return
        self.confirm(f"Discard {dead_letters(forecast.count)}?", options)
        pace = unpaced(**{name: options[name] for name in ("canary", "rate", "limit")})
        plan = start_plan(
            Plan.Action.DISCARD,
            forecast.selection,
            by=self.by(options),
            reason=options["reason"],
            using=using,
            pace=pace,
        )
        self._carry_out(plan, forecast.count, options)
        self._show_result(plan, options)

    def _carry_out(self, plan: Plan, count: int, options: dict[str, Any]) -> None:
        bar = ProgressBar(sys.stderr, count)
        try:
            run_to_end(plan, on_step=bar.show)
        except KeyboardInterrupt:
            # Otherwise the workers would continue the plan.
            plans.pause(plan.pk, by=self.by(options), using=options["database"])
            again = f"manage.py eventbus_plan {plan.pk} resume"
            raise CommandError(f"Plan {plan.pk} is paused. Run `{again}` to continue.") from None
        finally:
            bar.end()

    def _show_result(self, plan: Plan, options: dict[str, Any]) -> None:
        words = " ".join(filter(None, (plan_in_words(plan), plan.note_text)))
        self.show(plan_as_json(plan), [words], options)
