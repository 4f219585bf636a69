"""Idleness: when a burst has nothing left to do."""

from __future__ import annotations

import time
from collections.abc import Sequence

from django_eventbus.relay import Relay
from django_eventbus.workers import ConsumerWorkers


class Idleness:
    """Tells whether queues, outboxes and plans have come to rest. Asked from many threads."""

    def __init__(self, workers: Sequence[ConsumerWorkers], relays: Sequence[Relay]) -> None:
        self.workers = workers
        self.relays = relays
        #: What had been received when all of it was first seen settled, and when that was.
        self._rest: tuple[list[int], float] = ([], 0.0)

    def __call__(self) -> bool:
        # Before the queues: what comes after this look makes the next one begin anew.
        received = [workers.received for workers in self.workers]
        # Asked twice, as each asks for itself: what is relayed meanwhile is in a queue then.
        return (
            self._are_drained()
            and not any(relay.has_ready_rows() for relay in self.relays)
            and self._are_plans_at_rest(received)
            and self._are_drained()
        )

    def _are_drained(self) -> bool:
        return all(workers.subscriber.is_drained() for workers in self.workers)

    def _are_plans_at_rest(self, received: list[int]) -> bool:
        seen, since = self._rest
        if seen != received:
            since = time.monotonic()
            self._rest = (received, since)
        # What was handled may be the answer that a plan awaits: a turn has to look at it first.
        return all(relay.plans.are_at_rest(since) for relay in self.relays)
