"""Load on real processes while something is broken under them, and the truth afterwards."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

from django.db import connection, transaction

from django_eventbus import publish
from django_eventbus.models import DeadLetter, InboxRecord, OutboxEvent
from tests.end_to_end.oracle import ENDS_WELL, assert_exactly_once, is_at_rest
from tests.shop.models import Effect
from tests.support.amqp import Amqp
from tests.support.helpers import eventually
from tests.support.processes import Manage, ManageProcess

#: Waits that let a test see an outage from its beginning to its end.
HASTY_OPTIONS = {"HEARTBEAT": "3s", "CONNECT_TIMEOUT": "3s", "CONFIRM_TIMEOUT": "3s"}
HASTY = {"BROKER_OPTIONS": HASTY_OPTIONS}
#: How long a fault that is not noticed by itself lasts.
SECONDS = float(os.environ.get("EVENTBUS_TEST_CHAOS_SECONDS", 0))
ALARM = max(3, min(SECONDS, 30))
#: No more is published while so much waits: a test has to come to its end.
BACKLOG = 200
#: One event in so many is of each kind that does not just succeed.
ODD_ONES = 40


def rounds() -> Iterator[int]:
    """Yield once; with EVENTBUS_TEST_CHAOS_SECONDS, again and again for so long."""
    deadline = time.monotonic() + SECONDS
    number = 0
    while not number or time.monotonic() < deadline:
        yield number
        number += 1


def last(seconds: float) -> None:
    """Let a fault last."""
    threading.Event().wait(seconds)


class Load(threading.Thread):
    """Publishes some events at a time until it is told to stop."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        #: The ids of what was committed, with whether each has to end well.
        self.events: dict[str, bool] = {}
        self._ended = threading.Event()

    def run(self) -> None:
        try:
            while not self._ended.wait(0.1):
                if OutboxEvent.objects.exclude(state="published").count() > BACKLOG:
                    continue
                with transaction.atomic():
                    published = dict(self._publish() for _ in range(8))
                self.events |= published
        finally:
            connection.close()

    def _publish(self) -> tuple[str, bool]:
        number = len(self.events) % ODD_ONES
        kinds = list(ENDS_WELL)
        do = kinds[number] if number < len(kinds) else "ok"
        return str(publish("act.now", {"do": do})), ENDS_WELL[do]

    def end(self) -> None:
        self._ended.set()
        if self.is_alive():
            self.join(30)


class Storm:
    """A relay and two consumers under load; end() waits for calm and reads the truth."""

    def __init__(self, manage: Manage, amqp: Amqp, load: Load):
        self.amqp = amqp
        self.load = load
        self.manage = manage
        self.relay = self.start("relay_events")
        self.consumers = [self.start("consume_events") for _ in range(2)]
        self.processes = [self.relay, *self.consumers]
        for process in self.consumers:
            process.wait_for("Consuming")
        self.relay.wait_for("Relaying")
        self.load.start()
        self.go_on(50)

    def start(self, *arguments: str) -> ManageProcess:
        return self.manage(*arguments, env=self.amqp.environment, is_measured=True)

    def go_on(self, number: int = 30, timeout: float = 100) -> None:
        """Return when every outage is over, and so many more effects are there."""
        eventually(lambda: not self.is_in_outage, timeout=timeout, message=self.said)
        more = Effect.objects.count() + number
        eventually(lambda: Effect.objects.count() >= more, timeout=timeout, message=self.said)

    @property
    def is_in_outage(self) -> bool:
        """Whether a process waits for something: what is queued is handled all the same."""
        outputs = [process.output for process in self.processes]
        return any(each.count("Outage") != each.count("The outage is over") for each in outputs)

    def outages(self) -> list[int]:
        """How often each process has said that something is away."""
        return [process.output.count("Outage") for process in self.processes]

    def notice(self, former: list[int]) -> None:
        """Return when every process has noticed one outage more."""

        def is_noticed() -> bool:
            return all(new > old for new, old in zip(self.outages(), former, strict=True))

        eventually(is_noticed, timeout=40, message=self.said)

    def end(self, timeout: float = 100) -> None:
        """Stop the load, wait until everything is settled, and see that it is right."""
        self.load.end()
        events = self.load.events
        eventually(lambda: self._is_over(events), timeout=timeout, message=self.said, interval=0.2)
        for process in self.processes:
            process.terminate()
        assert [process.wait() for process in self.processes] == [0, 0, 0], self.said()
        consume_leftovers(self.start, self.amqp)
        assert_exactly_once(events)
        assert_no_attempt_was_burned()

    def _is_over(self, events: dict[str, bool]) -> bool:
        return is_at_rest() and InboxRecord.objects.count() == 2 * len(events) and not self.count()

    def count(self) -> int:
        """How many messages are ready."""
        return self.amqp.count(self.amqp.queue("acts"))

    def said(self) -> str:
        outputs = "\n".join(f"--- {each}\n{each.output[-3000:]}" for each in self.processes)
        outbox = Counter(OutboxEvent.objects.values_list("state", "error"))
        inbox = Counter(InboxRecord.objects.values_list("subscription", "state", "attempt"))
        return f"{len(self.load.events)} events\n{outbox}\n{inbox}\n{outputs}"


def consume_leftovers(start: Callable[..., ManageProcess], amqp: Amqp, queue: str = "acts") -> None:
    """Handle what came back when the workers ended: second copies without a second effect."""
    if amqp.count(amqp.queue(queue)):
        assert start("consume_events", "--burst").wait() == 0
    assert amqp.count(amqp.queue(queue)) == 0


def assert_no_attempt_was_burned() -> None:
    """No outage has used up an attempt."""
    failed = DeadLetter.objects.filter(kind="failed")
    assert {letter.attempts for letter in failed} <= {3}
    assert not DeadLetter.objects.exclude(kind__in=["failed", "given_up"]).exists()
