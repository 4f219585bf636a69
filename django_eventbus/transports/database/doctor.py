"""Problems and queue levels of the database transport."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from django.db.models import Count, Min, Q
from django.utils import timezone

from django_eventbus.conf import conf
from django_eventbus.durations import label
from django_eventbus.models import Binding, QueuedMessage
from django_eventbus.outages import proven
from django_eventbus.subscriptions.queue_specs import QueueSpec
from django_eventbus.transports.contract import (
    Level,
    Problem,
    PublishedType,
    error,
    unchecked,
    warning,
)
from django_eventbus.transports.routing_checks import doubly_handled, unhandled

#: A running consumer receives a due message within seconds.
_WAITING = timedelta(minutes=5)


def diagnose(
    using: str, queues: Sequence[QueueSpec], published: Sequence[PublishedType]
) -> list[Problem]:
    """Return the problems of the queues in the database *using*."""
    with proven(using):
        bindings = set(Binding.objects.using(using).values_list("exchange", "queue", "pattern"))
        found = [*_binding_problems(queues, bindings), *unhandled(published, bindings)]
        found += doubly_handled(queues, bindings)
        found += _backlogs(using)
    found.append(
        unchecked(
            "broker_only",
            "Queue arguments, policies, permissions, DLQs and clocks were not checked: only a "
            "broker has them.",
            "Nothing needs to be done: they do not apply to database://.",
        )
    )
    return found


def _binding_problems(
    queues: Sequence[QueueSpec], bindings: set[tuple[str, str, str]]
) -> Iterator[Problem]:
    wanted = {(exchange, each.name, key) for each in queues for exchange, key in each.bindings}
    system = {(exchange, each.name, key) for each in queues for exchange, key in each.system}
    for exchange, queue, pattern in sorted(wanted - bindings):
        make = warning if (exchange, queue, pattern) in system else error
        yield make(
            "unbound",
            f"The queue {queue} is not bound to {exchange} with {pattern!r}: such events do not "
            "reach it.",
            "Start consume_events, which binds the queue.",
            queue=queue,
        )
    for _, queue, pattern in sorted(bindings - wanted):
        if queue == conf.queue() or queue.startswith(f"{conf.queue()}."):
            yield warning(
                "stray_binding",
                f"The queue {queue} receives events {pattern!r}, but this project does not "
                "subscribe to them.",
                "Delete the binding if no other version of this service runs.",
                queue=queue,
            )


def _backlogs(using: str) -> Iterator[Problem]:
    now = timezone.now()
    late = QueuedMessage.objects.using(using).filter(available_at__lt=now - _WAITING)
    counted = late.values_list("queue").annotate(Count("id"), Min("available_at"))
    for queue, count, since in counted.order_by("queue"):
        age = label(round((now - since).total_seconds()))
        waiting = "1 message waits" if count == 1 else f"{count} messages wait"
        yield warning(
            "backlog",
            f"{waiting} in {queue}, the oldest for {age}.",
            "Start consume_events, or run more of it.",
            queue=queue,
        )


def levels(using: str, queues: Sequence[QueueSpec]) -> list[Level]:
    """Return how full *queues* are in the database *using*."""
    now = timezone.now()
    rows = QueuedMessage.objects.using(using).filter(queue__in=[each.name for each in queues])
    # A row with a token that is not due is being handled.
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
