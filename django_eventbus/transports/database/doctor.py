"""Say what is wrong with the queue tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from django.db.models import Count, Min
from django.utils import timezone

from django_eventbus.conf import conf
from django_eventbus.durations import label
from django_eventbus.findings import Finding, error, unchecked, warning
from django_eventbus.models import Binding, QueuedMessage
from django_eventbus.outages import proven
from django_eventbus.transports.contract import Published, QueueSpec
from django_eventbus.transports.takers import about_handled, about_published

#: A consumer that works takes what is due within seconds.
_WAITING = timedelta(minutes=5)


def examine(
    using: str, queues: Sequence[QueueSpec], published: Sequence[Published]
) -> list[Finding]:
    """Return what is wrong with the queues in the database *using*."""
    with proven(using):
        bindings = set(Binding.objects.using(using).values_list("exchange", "queue", "pattern"))
        found = [*_about_bindings(queues, bindings), *about_published(published, bindings)]
        found += about_handled(queues, bindings)
        found += _about_messages(using)
    found.append(
        unchecked(
            "What only a broker has: queue arguments, policies, permissions, a DLQ, clocks.",
            "It does not apply to database://.",
        )
    )
    return found


def _about_bindings(
    queues: Sequence[QueueSpec], bindings: set[tuple[str, str, str]]
) -> Iterator[Finding]:
    wanted = {(exchange, each.name, key) for each in queues for exchange, key in each.bindings}
    system = {(exchange, each.name, key) for each in queues for exchange, key in each.system}
    for exchange, queue, pattern in sorted(wanted - bindings):
        make = warning if (exchange, queue, pattern) in system else error
        yield make(
            f"The queue {queue} is not bound to {exchange} by {pattern!r}: such events do not "
            "reach it.",
            "Start consume_events, which binds it.",
        )
    for _, queue, pattern in sorted(bindings - wanted):
        if queue == conf.queue() or queue.startswith(f"{conf.queue()}."):
            yield warning(
                f"Events {pattern!r} go to the queue {queue}, and nothing here subscribes to them.",
                "Delete the binding if no other version of this service runs.",
            )


def _about_messages(using: str) -> Iterator[Finding]:
    now = timezone.now()
    late = QueuedMessage.objects.using(using).filter(available_at__lt=now - _WAITING)
    counted = late.values_list("queue").annotate(Count("id"), Min("available_at"))
    for queue, number, since in counted.order_by("queue"):
        age = label(round((now - since).total_seconds()))
        yield warning(
            f"{number} messages wait in {queue}, the first for {age}.",
            "Start consume_events, or more of it.",
        )
