"""Ask the broker how full queues are. A passive declare tells; no plugin is needed."""

from __future__ import annotations

from collections.abc import Iterator

from django_eventbus.durations import label
from django_eventbus.transports.contract import Level, QueueSpec
from django_eventbus.transports.rabbitmq.inquiry import Inquiry
from django_eventbus.transports.rabbitmq.topology import Queue, dead_letter_queue, tier
from django_eventbus.transports.rabbitmq.versions import current_version, versioned


def level(inquiry: Inquiry, spec: QueueSpec) -> Level:
    """Return how full the queue of *spec* is, with older versions of it that are still there."""
    names = [
        versioned(spec.name, version)
        for version in range(1, current_version(inquiry, spec.name) + 1)
    ]
    found = [each for name in names if (each := inquiry.found(Queue(name=name)))]
    return Level(
        queue=spec.name,
        messages=sum(each.method.message_count for each in found) if found else None,
        consumers=sum(each.method.consumer_count for each in found),
        tiers={
            label(delay): _sum(inquiry.count(tier(name, delay)) for name in names)
            for delay in sorted(set(spec.delays) - {0.0})
        },
        dlq=dead_letter_queue(names[-1]),
        dlq_messages=_sum(inquiry.count(dead_letter_queue(name)) for name in names),
    )


def _sum(counts: Iterator[int | None]) -> int | None:
    """Add up what is there; None if nothing is."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
