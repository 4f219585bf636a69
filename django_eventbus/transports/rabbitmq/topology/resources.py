"""The exchanges, queues and bindings that this project needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from django_eventbus.conf import conf
from django_eventbus.conf.names import placeholders
from django_eventbus.durations import label
from django_eventbus.events.routing import type_of
from django_eventbus.subscriptions.queue_specs import QueueSpec
from django_eventbus.transports.contract import (
    Address,
    Outgoing,
    Receipt,
    Refused,
    ToExchange,
    ToQueue,
    ToReply,
    ToTier,
    Unroutable,
)

#: Not a real queue: the broker sends its messages to the channel that asked, if it is open.
DIRECT_REPLY = "amq.rabbitmq.reply-to"
#: Only a last resort: START_LIMIT parks a message long before this limit.
_DELIVERY_LIMIT = 1000
#: A high number, because no limit means 20 on RabbitMQ 4, and with -1 RabbitMQ 3 discards at once.
_NO_LIMIT = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """An exchange to declare."""

    name: str
    kind: str

    def __str__(self) -> str:
        return f"exchange {self.name!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueResource:
    """A queue to declare."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"queue {self.name!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """A binding to declare."""

    queue: str
    exchange: str
    key: str

    def __str__(self) -> str:
        return f"binding of {self.queue!r} to {self.exchange!r} with {self.key!r}"


Resource = Exchange | QueueResource | Bind


def retry_exchange(queue: str) -> str:
    return conf.queue_part("retry_exchange", queue)


def tier(queue: str, delay: float) -> str:
    return conf.queue_part("tier", queue, delay=label(delay))


def tier_key(queue: str, delay: float) -> str:
    """Return the routing key that leads to the tier."""
    name = tier(queue, delay)
    return conf.queue_part("tier_key", queue, delay=label(delay), tier=name)


def dead_letter_exchange(queue: str) -> str:
    return conf.queue_part("dead_letter_exchange", queue)


def dead_letter_queue(queue: str) -> str:
    return conf.queue_part("dead_letter_queue", queue)


def dead_letter_key(queue: str) -> str:
    """Return the routing key that leads to the DLQ; "" if its exchange ignores it."""
    name = dead_letter_queue(queue)
    return conf.queue_part("dead_letter_key", queue, dead_letter_queue=name)


def owns_dead_letter_queue() -> bool:
    """Whether DLQs belong to this project: it declares or collects them, and none is shared."""
    parts = set(placeholders(conf.names["dead_letter_queue"]))
    is_claimed = conf.topology == "declare" or bool(conf.collect_dlq)
    return is_claimed and bool(parts & {"queue", "name", "service"})


def resources(spec: QueueSpec) -> Iterator[Resource]:
    """Yield the resources of *spec*, in the order in which they can be declared."""
    for exchange in dict.fromkeys((spec.exchange, *(each for each, _ in spec.bindings))):
        yield Exchange(name=exchange, kind=type_of(exchange))
    yield from family(spec)
    for exchange, key in spec.bindings:
        yield Bind(queue=spec.name, exchange=exchange, key=key)


def family(spec: QueueSpec) -> Iterator[Resource]:
    """Yield the queue with its DLQ and its tiers, but without its bindings to events."""
    queue, delays = spec.name, spec.delays
    yield from _dead_letters(queue)
    yield QueueResource(name=queue, arguments=_work_arguments(spec))
    yield from _named_exchange(retry_exchange(queue), "retry")
    for delay in sorted(set(delays) - {0.0}):
        name = tier(queue, delay)
        yield QueueResource(name=name, arguments=_tier_arguments(queue, delay))
        yield from _bound(name, retry_exchange(queue), tier_key(queue, delay))


def _dead_letters(queue: str) -> Iterator[Resource]:
    name, exchange = dead_letter_queue(queue), dead_letter_exchange(queue)
    limit = {"x-delivery-limit": _NO_LIMIT} if _is_quorum() else {}
    yield from _named_exchange(exchange, "dead_letter")
    yield QueueResource(name=name, arguments={**_type(), **limit})
    yield from _bound(name, exchange, dead_letter_key(queue))


def _named_exchange(name: str, purpose: str) -> Iterator[Exchange]:
    # The default exchange always exists, and every queue is bound to it by its name.
    if name:
        yield Exchange(name=name, kind=conf.exchange_types[purpose])


def _bound(queue: str, exchange: str, key: str) -> Iterator[Bind]:
    if exchange:
        yield Bind(queue=queue, exchange=exchange, key=key)


def _work_arguments(spec: QueueSpec) -> dict[str, Any]:
    queue = spec.name
    limit = {"x-delivery-limit": _DELIVERY_LIMIT} if _is_quorum() else {}
    key = dead_letter_key(queue)
    return {
        **_type(),
        **_at_least_once(),
        **limit,
        "x-dead-letter-exchange": dead_letter_exchange(queue),
        **({"x-dead-letter-routing-key": key} if key else {}),
        **({"x-single-active-consumer": True} if spec.is_ordered else {}),
    }


def _tier_arguments(queue: str, delay: float) -> dict[str, Any]:
    # One queue per delay: RabbitMQ expires messages only at the head of a queue, so mixed delays
    # would block each other. They return through the default exchange, so only to this queue.
    written = label(delay)
    return {
        **_type(),
        **_at_least_once(),
        "x-message-ttl": round(delay * 1000),
        "x-dead-letter-exchange": conf.queue_part("tier_return_exchange", queue, delay=written),
        "x-dead-letter-routing-key": conf.queue_part("tier_return_key", queue, delay=written),
    }


def _type() -> dict[str, Any]:
    return {"x-queue-type": conf.queue_type}


def _at_least_once() -> dict[str, Any]:
    # Without reject-publish, the broker uses at-most-once, and reports that only in its log.
    if not _is_quorum():
        return {}
    return {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}


def _is_quorum() -> bool:
    return conf.queue_type == "quorum"


def target_of(address: Address) -> tuple[str, str]:
    """Return the exchange and the routing key of *address*."""
    match address:
        case ToExchange(exchange=exchange, routing_key=routing_key):
            return exchange, routing_key
        case ToQueue(queue=queue):
            return "", queue
        case ToReply(reply_to=reply_to):
            return "", reply_to
        case ToTier(queue=queue, delay=delay) if not delay:
            return "", queue
        case ToTier(queue=queue, delay=delay):
            return retry_exchange(queue), tier_key(queue, delay)


def reply_problem(address: Address) -> str:
    """Return why the reply_to of *address* is not accepted, or ""."""
    # Otherwise any sender of a ping could make this service write to any queue.
    if isinstance(address, ToReply) and not address.reply_to.startswith(f"{DIRECT_REPLY}."):
        return "its reply_to is not a direct reply-to address"
    return ""


def missed_tiers(batch: Sequence[Outgoing], receipts: Sequence[Receipt]) -> dict[int, str]:
    """Return the indexes in *batch* of retries that no tier accepted, with their queues."""
    return {
        index: outgoing.address.queue
        for index, (outgoing, receipt) in enumerate(zip(batch, receipts, strict=True))
        if isinstance(outgoing.address, ToTier) and isinstance(receipt, Unroutable | Refused)
    }
