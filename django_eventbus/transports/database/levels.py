"""Count what waits in the queue tables."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Count, Q
from django.utils import timezone

from django_eventbus.models import QueuedMessage
from django_eventbus.outages import proven
from django_eventbus.transports.contract import Level, QueueSpec


def levels(using: str, queues: Sequence[QueueSpec]) -> list[Level]:
    """Return how full *queues* are in the database *using*."""
    now = timezone.now()
    rows = QueuedMessage.objects.using(using).filter(queue__in=[each.name for each in queues])
    # A row with a token that is not due is in a handler's hands.
    counted = rows.values_list("queue").annotate(
        due=Count("id", filter=Q(available_at__lte=now)),
        waiting=Count("id", filter=Q(available_at__gt=now, token=None)),
    )
    with proven(using):
        found = {queue: (due, waiting) for queue, due, waiting in counted.order_by("queue")}
    nothing = (0, 0)
    return [
        Level(
            queue=each.name,
            messages=found.get(each.name, nothing)[0],
            tiers={"": found.get(each.name, nothing)[1]},
        )
        for each in queues
    ]
