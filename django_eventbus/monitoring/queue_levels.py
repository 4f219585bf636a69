"""Record how full the queues are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.db import DEFAULT_DB_ALIAS
from django.utils import timezone

from django_eventbus.conf import conf
from django_eventbus.exceptions import BrokerRefused, Unavailable
from django_eventbus.models import Queue, Worker
from django_eventbus.subscriptions.queue_specs import QueueSpec
from django_eventbus.transports.contract import Level, Transport

#: Seconds between two records.
RECORD_EVERY = 10.0


class QueueLevels:
    """Records the levels of a project's queues; one worker of a service is enough."""

    def __init__(
        self, transport: Transport, specs: Callable[[], Sequence[QueueSpec]], worker: Worker
    ) -> None:
        self.transport = transport
        self.specs = specs
        self.worker = worker

    def record(self) -> None:
        """Ask the broker and write the levels, unless an older worker does."""
        workers = Worker.objects.using(DEFAULT_DB_ALIAS)
        if workers.is_first(self.worker, timezone.now()):
            self._write(self.specs())

    def _write(self, specs: Sequence[QueueSpec]) -> None:
        rows = Queue.objects.using(DEFAULT_DB_ALIAS)
        try:
            levels = self.transport.levels(specs)
        except (Unavailable, BrokerRefused) as error:
            names = [spec.name for spec in specs]
            rows.not_measured(names, service=conf.service, trouble=str(error))
            raise
        is_collected = conf.collect_dlq is not False and self.transport.owns_dead_letter_queues()
        found = [{**_columns(each), "is_collected": is_collected} for each in levels]
        rows.measured(found, service=conf.service, now=timezone.now())


def _columns(level: Level) -> dict[str, Any]:
    return {
        "name": level.queue,
        "messages": level.messages,
        "consumers": level.consumers,
        "tiers": dict(level.tiers),
        "dlq": level.dlq,
        "dlq_messages": level.dlq_messages,
    }
