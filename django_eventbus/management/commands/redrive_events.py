"""Re-drive dead letters by a plan, or what lies in a broker's DLQ."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_eventbus import plans
from django_eventbus.broker_dead_letters import (
    BrokerRedrive,
    DeadLetterQueue,
    Moved,
    Remains,
    find_dead_letter_queue,
    peek,
)
from django_eventbus.dlq_audit import DlqAudit
from django_eventbus.dry_runs import Forecast, dry_run
from django_eventbus.edits import dry_run_patch
from django_eventbus.exceptions import EventBusError
from django_eventbus.management.plan_words import no_plan_as_json, plan_as_json, plan_in_words
from django_eventbus.management.progress_bar import ProgressBar
from django_eventbus.management.selection_command import (
    SelectionCommand,
    above_zero,
    as_json,
    as_lines,
    dead_letters,
    percent,
    whole,
)
from django_eventbus.management.worker_command import connected, positive
from django_eventbus.models import Plan
from django_eventbus.selections import Selection
from django_eventbus.transports.contract import Transport
from django_eventbus.workers import Crew

_FROM_BROKER = 100
_LOOK_EVERY = 0.3
#: Options that mean something to a plan only.
_OF_PLANS = ("canary", "rate", "in_flight", "fail_percent", "tries", "patch", "wait")


class Command(SelectionCommand):
    help = "Send dead letters back to the subscriptions that failed, by a plan for the workers."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--canary", type=whole, help="How many go first; 0: none.")
        parser.add_argument("--rate", type=above_zero, help="How many per second.")
        parser.add_argument("--in-flight", type=positive, help="How many may be under way.")
        parser.add_argument(
            "--fail-percent", type=percent, help="Pause when more than this fail again."
        )
        parser.add_argument("--tries", type=positive, help="How many attempts each has.")
        parser.add_argument(
            "--patch", type=patch, metavar="JSON", help="A JSON merge patch of every payload."
        )
        parser.add_argument("--wait", action="store_true", help="Wait for the end of the plan.")
        parser.add_argument(
            "--from-broker", metavar="QUEUE", help="What lies in a DLQ: the queue, or its DLQ."
        )

    def meant(self, options: dict[str, Any]) -> Selection:
        # In a DLQ nothing is ignored, and filters are refused beside it.
        return Selection() if options["from_broker"] else super().meant(options)

    def work(self, selection: Selection, options: dict[str, Any]) -> None:
        if options["from_broker"]:
            self._from_broker(options)
            return
        forecast = self._forecast(selection, options)
        if options["dry_run"] or not forecast.count:
            self._tell(forecast, options)
            return
        count = forecast.count
        self.confirm(f"Re-drive {dead_letters(count)}?", options)
        plan = self._started(forecast.selection, options)
        if options["wait"]:
            self._wait(plan, count, options)
        else:
            words = f"Plan {plan.pk} re-drives {count:,}; the workers carry it out."
            self.show({"plan": plan.pk, "count": count}, [words], options)

    def _forecast(self, selection: Selection, options: dict[str, Any]) -> Forecast:
        using, limit, change = options["database"], options["limit"], options["patch"]
        if change is None:
            return dry_run(selection, using=using, limit=limit)
        return dry_run_patch(selection, change, using=using, limit=limit)

    def _tell(self, forecast: Forecast, options: dict[str, Any]) -> None:
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
        # What is under way when it pauses is still waited for.
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
            raise CommandError(plan.note or f"{count - counts['healed']:,} did not heal.")

    def _from_broker(self, options: dict[str, Any]) -> None:
        refuse_plan_words(options)
        limit = options["limit"] or _FROM_BROKER
        with connected() as transport:
            dlq = find_dead_letter_queue(transport, options["from_broker"])
            if options["dry_run"]:
                self._tell_would_move(peek(transport, dlq, limit), options)
                return
            plans.require_reason(options["reason"], limit)
            self.confirm(f"Re-drive at most {limit:,} of the messages in {dlq.name}?", options)
            moved = self._moved(transport, dlq, limit, options)
        self._tell_moved(moved, dlq, options)

    def _moved(
        self, transport: Transport, dlq: DeadLetterQueue, limit: int, options: dict[str, Any]
    ) -> Moved:
        by, using = self.by(options), options["database"]
        entries = DlqAudit(queues=dlq.queues, by=by, why=options["reason"], using=using)
        entries.asked("redrive", limit)
        crew = Crew()
        try:
            with crew.stopping_on_signals():
                moved = BrokerRedrive(transport, dlq, by=by, stop=crew.stop).run(limit)
        except EventBusError as error:
            entries.failed_to_redrive(error)
            raise
        entries.redrove(len(moved.moved), len(moved.left))
        return moved

    def _tell_would_move(self, remains: list[Remains], options: dict[str, Any]) -> None:
        found = {each.message.id: each.queue for each in remains}
        lines = [f"Would move {each} to {queue}." for each, queue in found.items()]
        self.show({"would_move": found}, lines, options)

    def _tell_moved(self, moved: Moved, dlq: DeadLetterQueue, options: dict[str, Any]) -> None:
        lines = [f"Left {each}: {reason}." for each, reason in moved.left.items()]
        lines.append(f"Moved {len(moved.moved)} messages.")
        self.show({"moved": moved.moved, "left": moved.left}, lines, options)
        if moved.left:
            raise CommandError(f"{len(moved.left)} messages stay in {dlq.name}.")


def refuse_plan_words(options: dict[str, Any]) -> None:
    """Raise CommandError if filters or options of a plan were given beside --from-broker."""
    # By identity: a canary of 0 was given too.
    given = [name for name in _OF_PLANS if options[name] is not None and options[name] is not False]
    words = [*options["filters"], *(f"--{name.replace('_', '-')}" for name in given)]
    if words:
        raise CommandError(
            "--from-broker takes what lies in the DLQ, without a plan: "
            f"leave out {', '.join(words)}."
        )


def patch(text: str) -> Any:
    """Accept an object as JSON."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"this is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError('write an object, such as {"currency": "EUR"}')
    return value
