"""List the subscriptions of this project."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django.core.management.base import CommandParser

from django_eventbus.durations import label
from django_eventbus.management.output import PrintingCommand
from django_eventbus.subscriptions.subscription import Subscription, registry


class Command(PrintingCommand):
    help = "List the subscriptions of this project, by queue."

    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="Print a JSON list.")

    def handle(self, *args: Any, **options: Any) -> None:
        found = sorted(registry, key=lambda each: (each.queue, each.name))
        if options["json"]:
            self.stdout.write(json.dumps([facts(each) for each in found]))
            return
        for queue in sorted({each.queue for each in found}):
            self.stdout.write(queue)
            self._write([each for each in found if each.queue == queue])

    def _write(self, subscriptions: Sequence[Subscription]) -> None:
        width = max(len(each.name) for each in subscriptions)
        for each in subscriptions:
            policy = each.policy
            delays = ", ".join(map(label, policy.delays)) or "none"
            tries = "1 try" if policy.tries == 1 else f"{policy.tries} tries"
            self.stdout.write(
                f"  {each.name.ljust(width)}  {each.pattern}, {tries}, delays {delays}"
            )


def facts(subscription: Subscription) -> dict[str, Any]:
    """Return the options of a subscription for JSON."""
    policy = subscription.policy
    return {
        "name": subscription.name,
        "aliases": list(subscription.aliases),
        "queue": subscription.queue,
        "pattern": subscription.pattern,
        "event": subscription.event_class.__name__ if subscription.event_class else "",
        "tries": policy.tries,
        "delays": [label(delay) for delay in policy.delays],
        "atomic": subscription.atomic,
        "database": subscription.using,
    }
