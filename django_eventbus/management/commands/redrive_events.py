"""Re-drive dead letters by a plan, or messages from the DLQ of a broker."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_eventbus.dead_letters.selection import Selection
from django_eventbus.exceptions import EventBusError
from django_eventbus.management.dead_letter_command import (
    DeadLetterCommand,
    above_zero,
    as_json,
    as_lines,
    dead_letters,
    percent,
    whole,
)
from django_eventbus.management.output import (
    ProgressBar,
    no_plan_as_json,
    plan_as_json,
    plan_in_words,
)
from django_eventbus.management.worker_command import connected, positive
from django_eventbus.models import Plan
from django_eventbus.models.reasons import StayReason
from django_eventbus.redrive import plans
from django_eventbus.redrive.dry_runs import Forecast, dry_run, dry_run_patch
from django_eventbus.redrive.from_broker import (
    BrokerRedrive,
    DeadLetterQueue,
    DlqAudit,
    DlqMessage,
    DlqRedriveResult,
    find_dead_letter_queue,
    peek,
)
from django_eventbus.transports.contract import Transport
from django_eventbus.workers.crew import Crew

_FROM_BROKER = 100
_LOOK_EVERY = 0.3
#: Options that only a plan uses.
_OF_PLANS = ("canary", "rate", "in_flight", "fail_percent", "tries", "patch", "wait")


class Command(DeadLetterCommand):
    help = "Send dead letters back to the subscriptions that failed. Workers carry out the plan."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--canary", type=whole, help="The number of dead letters that are sent first, or 0."
        )
        parser.add_argument(
            "--rate", type=above_zero, help="The number of dead letters per second."
        )
        parser.add_argument(
            "--in-flight",
            type=positive,
            help="The number of dead letters that may be under way at a time.",
        )
        parser.add_argument(
            "--fail-percent",
            type=percent,
            help="Pause the plan when more than this percentage fails again.",
        )
        parser.add_argument(
            "--tries", type=positive, help="The number of attempts for each dead letter."
        )
        parser.add_argument(
            "--patch", type=patch, metavar="JSON", help="A JSON merge patch for every payload."
        )
        parser.add_argument("--wait", action="store_true", help="Wait until the plan has ended.")
        parser.add_argument(
            "--from-broker",
            metavar="QUEUE",
            help="Re-drive messages from a DLQ of the broker: the name of the queue or of its DLQ.",
        )

    def meant(self, options: dict[str, Any]) -> Selection:
        # No message of a DLQ is ignored, and filters are refused with --from-broker.
        return Selection() if options["from_broker"] else super().meant(options)

    def work(self, selection: Selection, options: dict[str, Any]) -> None:
        if options["from_broker"]:
            self._from_broker(options)
            return
        forecast = self._forecast(selection, options)
        if options["dry_run"] or not forecast.count:
            self._show_forecast(forecast, options)
            return
        count = forecast.count
        self.confirm(f"Re-drive {dead_letters(count)}?", options)
        plan = self._started(forecast.selection, options)
        if options["wait"]:
            self._wait(plan, plan.total, options)
        else:
            words = f"Plan {plan.pk} re-drives {dead_letters(plan.total)}. Workers carry it out."
            if plan.total != count:
                words += f" The dry run counted {count:,}: some have changed since then."
            self.show({"plan": plan.pk, "count": plan.total}, [words], options)

    def _forecast(self, selection: Selection, options: dict[str, Any]) -> Forecast:
        using, limit, change = options["database"], options["limit"], options["patch"]
        if change is None:
            return dry_run(selection, using=using, limit=limit)
        return dry_run_patch(selection, change, using=using, limit=limit)

    def _show_forecast(self, forecast: Forecast, options: dict[str, Any]) -> None:
        found: dict[str, Any] = {"plan": None, "count": 0}
        if options["dry_run"]:
            found = as_json(forecast)
        elif options["wait"]:
            found = no_plan_as_json(Plan.Action.REDRIVE)
        self.show(found, as_lines(forecast), options)

    def _started(self, selection: Selection, options: dict[str, Any]) -> Plan:
        names = ("canary", "rate", "in_flight", "fail_percent", "tries", "limit")
        given = {name: options[name] for name in names if options[name] is not None}
        by, using = self.by(options), options["database"]
        plan = plans.make_plan(
            selection,
            by=by,
            reason=options["reason"],
            using=using,
            pace=plans.Pace(**given),
            patch=options["patch"],
        )
        return plans.start(plan.pk, by=by, using=using)

    def _wait(self, plan: Plan, count: int, options: dict[str, Any]) -> None:
        bar = ProgressBar(sys.stderr, count)
        counts = plans.progress(plan)
        # Also wait for the dead letters that were sent before the plan paused.
        while plan.ended_at is None and not (plan.state == "paused" and not counts["sent"]):
            time.sleep(_LOOK_EVERY)
            plan.refresh_from_db()
            counts = plans.progress(plan)
            healed, failed = counts["healed"], counts["failed"]
            bar.show(
                count - counts["pending"] - counts["sent"], f"{healed:,} healed, {failed:,} failed"
            )
        bar.end()
        self.show(plan_as_json(plan), [plan_in_words(plan)], options)
        if plan.state != "done" or counts["healed"] < count:
            raise CommandError(
                plan.note_text or f"{dead_letters(count - counts['healed'])} did not heal."
            )

    def _from_broker(self, options: dict[str, Any]) -> None:
        raise_if_plan_options(options)
        limit = options["limit"] or _FROM_BROKER
        with connected() as transport:
            dlq = find_dead_letter_queue(transport, options["from_broker"])
            if options["dry_run"]:
                self._show_would_move(peek(transport, dlq, limit), options)
                return
            plans.require_reason(options["reason"], limit)
            self.confirm(f"Re-drive up to {_messages(limit)} from {dlq.name}?", options)
            moved = self._moved(transport, dlq, limit, options)
        self._show_moved(moved, dlq, options)

    def _moved(
        self, transport: Transport, dlq: DeadLetterQueue, limit: int, options: dict[str, Any]
    ) -> DlqRedriveResult:
        by, using = self.by(options), options["database"]
        entries = DlqAudit(queues=dlq.queues, by=by, why=options["reason"], using=using)
        entries.record_request("redrive", limit)
        crew = Crew()
        try:
            with crew.stopping_on_signals():
                moved = BrokerRedrive(transport, dlq, by=by, stop=crew.stop).run(limit)
        except EventBusError as error:
            entries.failed_to_redrive(error)
            raise
        entries.redrove(len(moved.moved), len(moved.left))
        return moved

    def _show_would_move(self, remains: list[DlqMessage], options: dict[str, Any]) -> None:
        found = {each.message.id: each.queue for each in remains}
        lines = [f"Would move {each} to {queue}." for each, queue in found.items()]
        self.show({"would_move": found}, lines, options)

    def _show_moved(
        self, moved: DlqRedriveResult, dlq: DeadLetterQueue, options: dict[str, Any]
    ) -> None:
        lines = [
            f"Message {each} stays in the DLQ: {StayReason(stay.reason).sentence(stay.detail)}."
            for each, stay in moved.left.items()
        ]
        lines.append(f"Moved {_messages(len(moved.moved))}.")
        left = {each: stay._asdict() for each, stay in moved.left.items()}
        self.show({"moved": moved.moved, "left": left}, lines, options)
        if moved.left:
            stay = "stays" if len(moved.left) == 1 else "stay"
            raise CommandError(f"{_messages(len(moved.left))} {stay} in {dlq.name}.")


def _messages(count: int) -> str:
    return f"{count:,} message{'' if count == 1 else 's'}"


def raise_if_plan_options(options: dict[str, Any]) -> None:
    """Raise CommandError if filters or options of a plan are given with --from-broker."""
    # By identity: --canary 0 is an option too.
    given = [name for name in _OF_PLANS if options[name] is not None and options[name] is not False]
    words = [*options["filters"], *(f"--{name.replace('_', '-')}" for name in given)]
    if words:
        raise CommandError(
            f"--from-broker re-drives a DLQ without a plan. Remove {', '.join(words)}."
        )


def patch(text: str) -> Any:
    """Accept an object as JSON."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError('use a JSON object, such as {"currency": "EUR"}')
    return value
