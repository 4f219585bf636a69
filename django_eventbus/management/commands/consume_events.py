"""Handle events: receive, handle once, retry, park."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_eventbus.allowance import Allowance
from django_eventbus.conf import conf
from django_eventbus.heartbeat import this_process
from django_eventbus.idleness import Idleness
from django_eventbus.management.worker_command import WorkerCommand, positive
from django_eventbus.models import Worker
from django_eventbus.ordered_workers import OrderedWorkers
from django_eventbus.relay import Relay
from django_eventbus.subscriptions import registry
from django_eventbus.workers import ConsumerWorkers, RelayLoop


class Command(WorkerCommand):
    """Consume until told to stop."""

    help = "Run the handlers of this service's queues until stopped."

    workers: list[ConsumerWorkers]

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--queue", action="append", metavar="NAME", help="Only this queue; may be repeated."
        )
        parser.add_argument("--concurrency", type=positive, help="Handler threads.")
        parser.add_argument(
            "--prefetch", type=positive, help="Unsettled messages at a time; 1 is the fairest."
        )
        parser.add_argument(
            "--with-relay", action="store_true", help="Relay the outbox in this process too."
        )
        parser.add_argument("--once", action="store_true", help="Take one message, if any; exit.")
        parser.add_argument(
            "--burst", action="store_true", help="Exit when nothing is due any more."
        )
        parser.add_argument("--max-messages", type=positive, help="Exit after so many messages.")
        super().add_arguments(parser)

    def worker(self, **options: Any) -> Worker:
        kind = Worker.Kind.BOTH if options["with_relay"] else Worker.Kind.CONSUMER
        return this_process(kind, chosen_queues(options["queue"]))

    def wire(self, **options: Any) -> str:
        queues = chosen_queues(options["queue"])
        relays = self._relays() if options["with_relay"] else []
        threads = self._threads(options["concurrency"])
        is_ending = options["once"] or options["burst"]
        self.workers = []
        is_idle = Idleness(self.workers, relays) if is_ending else None
        limit = 1 if options["once"] else options["max_messages"]
        if unordered := [queue for queue in queues if not registry.is_ordered(queue)]:
            prefetch = options["prefetch"] or conf.prefetch or threads * 2
            self._add_unordered(unordered, threads, prefetch, is_idle)
        for queue in filter(registry.is_ordered, queues):
            ordered = OrderedWorkers(self.transport, queue, self.crew.stop, is_idle=is_idle)
            self.workers.append(ordered)
            self.crew.add(f"handler of {queue}", ordered.loop)
        self._share(Allowance(limit))
        for relay in relays:
            self.crew.add(f"relay of {relay.using}", RelayLoop(relay, self.crew.stop).loop)
        of_several = f" of {', '.join(each.using for each in relays)}" if len(relays) > 1 else ""
        with_relay = f" and relaying the outbox{of_several}" if relays else ""
        workers = "1 thread" if threads == 1 else f"{threads} threads"
        return f"Consuming {', '.join(queues)} with {workers}{with_relay}."

    def _add_unordered(
        self, queues: list[str], threads: int, prefetch: int, is_idle: Callable[[], bool] | None
    ) -> None:
        workers = ConsumerWorkers(
            self.transport, queues, self.crew.stop, prefetch=prefetch, is_idle=is_idle
        )
        self.workers.append(workers)
        for number in range(1, threads + 1):
            self.crew.add(f"handler {number}", workers.loop)

    def _share(self, allowance: Allowance) -> None:
        for workers in self.workers:
            workers.allowance = allowance

    def unwire(self) -> None:
        for workers in self.workers:
            workers.close()

    def _relays(self) -> list[Relay]:
        return [Relay(self.transport.publisher(), using) for using in registry.databases()]

    def _threads(self, asked: int | None) -> int:
        return min(asked or conf.concurrency, self.transport.concurrency_limit or 1_000)


def chosen_queues(names: list[str] | None) -> list[str]:
    """Return the queues called *names*, short or in full, or all that have subscriptions."""
    known = registry.queues()
    if not known:
        raise CommandError("There are no subscriptions: add @subscribe in an app's subscribers.py.")
    if not names:
        return known
    chosen = [name if name in known else conf.queue(name) for name in names]
    for name, queue in zip(names, chosen, strict=True):
        if queue not in known:
            raise CommandError(
                f"No subscription is on a queue {name!r}; there is {', '.join(known)}."
            )
    return chosen
