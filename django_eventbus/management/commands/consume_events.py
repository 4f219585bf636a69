"""Handle events: receive, handle once, retry, park."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_eventbus.conf import conf
from django_eventbus.management.worker_command import WorkerCommand, positive
from django_eventbus.models import Worker
from django_eventbus.monitoring.heartbeat import this_process
from django_eventbus.outbox.relay import Relay
from django_eventbus.subscriptions.subscription import registry
from django_eventbus.workers.loops import (
    ConsumerLoop,
    IdleCheck,
    MessageLimit,
    RelayLoop,
    consumer_loops,
)


class Command(WorkerCommand):
    """Consume until stopped."""

    help = "Run the handlers for the queues of this service until stopped."

    loops: list[ConsumerLoop]

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--queue",
            action="append",
            metavar="NAME",
            help="Consume only this queue. The option can be repeated.",
        )
        parser.add_argument("--concurrency", type=positive, help="The number of handler threads.")
        parser.add_argument(
            "--prefetch",
            type=positive,
            help="The number of unsettled messages at a time; by default twice the number of threads.",
        )
        parser.add_argument(
            "--with-relay", action="store_true", help="Also relay the outbox in this process."
        )
        parser.add_argument(
            "--once", action="store_true", help="Handle one message, if there is any, and exit."
        )
        parser.add_argument("--burst", action="store_true", help="Exit when no message is due.")
        parser.add_argument(
            "--max-messages", type=positive, help="Exit after this number of messages."
        )
        super().add_arguments(parser)

    def worker(self, **options: Any) -> Worker:
        kind = Worker.Kind.BOTH if options["with_relay"] else Worker.Kind.CONSUMER
        return this_process(kind, chosen_queues(options["queue"]))

    def wire(self, **options: Any) -> str:
        queues = chosen_queues(options["queue"])
        threads = self._threads(options["concurrency"])
        relay_loops = self._relay_loops() if options["with_relay"] else []
        self.loops = []
        is_idle = (
            IdleCheck(self.loops, relay_loops) if options["once"] or options["burst"] else None
        )
        self.loops += consumer_loops(
            self.transport,
            queues,
            lambda: self.crew.stop,
            prefetch=options["prefetch"] or threads * 2,
            limit=MessageLimit(1 if options["once"] else options["max_messages"]),
            is_idle=is_idle,
        )
        for loop in self.loops:
            for name in loop.thread_names(threads):
                self.crew.add(name, loop.run)
        for relay_loop in relay_loops:
            self.crew.add(f"relay of {relay_loop.relay.using}", relay_loop.run)
        databases = [loop.relay.using for loop in relay_loops]
        of_several = f" of {', '.join(databases)}" if len(databases) > 1 else ""
        with_relay = f" and relaying the outbox{of_several}" if databases else ""
        workers = "1 thread" if threads == 1 else f"{threads} threads"
        return f"Consuming {', '.join(queues)} with {workers}{with_relay}."

    def unwire(self) -> None:
        for loop in self.loops:
            loop.close()

    def _relay_loops(self) -> list[RelayLoop]:
        relays = [Relay(self.transport.publisher(), using) for using in registry.databases()]
        return [RelayLoop(relay, self.crew.stop) for relay in relays]

    def _threads(self, asked: int | None) -> int:
        return min(asked or conf.concurrency, self.transport.concurrency_limit or 1_000)


def chosen_queues(names: list[str] | None) -> list[str]:
    """Return the queues with these short or full *names*, or all queues with subscriptions."""
    known = registry.queues()
    if not known:
        raise CommandError("There are no subscriptions: add @subscribe in an app's subscribers.py.")
    if not names:
        return known
    chosen = [name if name in known else conf.queue(name) for name in names]
    for name, queue in zip(names, chosen, strict=True):
        if queue not in known:
            raise CommandError(
                f"No subscription uses a queue {name!r}. The queues are {', '.join(known)}."
            )
    return chosen
