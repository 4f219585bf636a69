"""The embedded default: queues and tiers as tables in the Django database."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from django.db import DEFAULT_DB_ALIAS, connections

from django_eventbus.conf import conf
from django_eventbus.exceptions import BadSetting
from django_eventbus.models import Binding, QueuedMessage
from django_eventbus.outages import proven
from django_eventbus.subscriptions.queue_specs import QueueSpec
from django_eventbus.transports.contract import Level, Problem, PublishedType
from django_eventbus.transports.database.doctor import diagnose, levels
from django_eventbus.transports.database.publisher import DatabasePublisher, DatabaseReplyBox
from django_eventbus.transports.database.subscriber import DatabaseSubscriber

logger = logging.getLogger("django_eventbus.transports.database")


class DatabaseTransport:
    """Queues in the database *using*."""

    def __init__(self, using: str) -> None:
        self.using = using
        self._ordered: set[str] = set()

    @property
    def concurrency_limit(self) -> int | None:
        # One writer at a time: more threads would only wait for each other's locks.
        return 1 if connections[self.using].vendor == "sqlite" else None

    def declare(self, queues: Sequence[QueueSpec]) -> None:
        bindings = Binding.objects.using(self.using)
        self._ordered |= {queue.name for queue in queues if queue.is_ordered}
        with proven(self.using):
            for queue in queues:
                for exchange, pattern in queue.bindings:
                    bindings.bind(exchange, queue.name, [pattern])
            self._warn_of_strays(queues)

    def remove(self, queues: Sequence[QueueSpec]) -> None:
        names = [queue.name for queue in queues]
        with proven(self.using):
            Binding.objects.using(self.using).filter(queue__in=names).delete()
            QueuedMessage.objects.using(self.using).filter(queue__in=names).delete()

    def _warn_of_strays(self, queues: Sequence[QueueSpec]) -> None:
        known = {(queue.name, pattern) for queue in queues for _, pattern in queue.bindings}
        bound = Binding.objects.using(self.using).filter(queue__startswith=conf.queue())
        for queue, pattern in set(bound.values_list("queue", "pattern")) - known:
            logger.warning(
                "Events %s still go to the queue %s, but this project does not subscribe to them.",
                pattern,
                queue,
            )

    def dead_letter_queue(self, queue: str) -> str | None:
        # A table has no broker that dead-letters messages.
        return None

    def owns_dead_letter_queues(self) -> bool:
        return False

    def diagnose(
        self, queues: Sequence[QueueSpec], published: Sequence[PublishedType]
    ) -> list[Problem]:
        return diagnose(self.using, queues, published)

    def levels(self, queues: Sequence[QueueSpec]) -> list[Level]:
        return levels(self.using, queues)

    def publisher(self) -> DatabasePublisher:
        return DatabasePublisher(self.using)

    def subscriber(self, queues: Sequence[str], prefetch: int) -> DatabaseSubscriber:
        return DatabaseSubscriber(self.using, queues, self._ordered)

    def reply_box(self) -> DatabaseReplyBox:
        return DatabaseReplyBox(self.using)


def from_url(url: str) -> DatabaseTransport:
    """Read database:// or database://alias."""
    using = url.partition("://")[2].strip("/") or DEFAULT_DB_ALIAS
    if using not in connections:
        # The name is not shown: it may contain a password.
        known = ", ".join(sorted(connections))
        raise BadSetting(
            "BROKER_URL",
            f"the name after database:// is not a key of DATABASES. The keys are {known}.",
        )
    return DatabaseTransport(using)
