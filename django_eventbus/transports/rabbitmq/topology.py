"""What exists on the broker for a queue: names and arguments. Pure, but for declare()."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from django_eventbus.conf import conf
from django_eventbus.durations import label
from django_eventbus.exceptions import BrokerRefused, BrokerUnavailable
from django_eventbus.transports.contract import (
    Address,
    QueueSpec,
    ToExchange,
    ToQueue,
    ToTier,
)
from django_eventbus.transports.rabbitmq.connection import BrokerConnection

#: A backstop: our own START_LIMIT parks a message long before it.
_DELIVERY_LIMIT = 1000
#: An absent limit is 20 on RabbitMQ 4, and -1 discards at once on 3: name a number.
_NO_LIMIT = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """An exchange to declare."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A queue to declare."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """A binding to make."""

    queue: str
    exchange: str
    key: str


Resource = Exchange | Queue | Bind


def retry_exchange(queue: str) -> str:
    return f"{queue}.retry"


def tier(queue: str, delay: float) -> str:
    return f"{queue}.retry.{label(delay)}"


def dead_letter_queue(queue: str) -> str:
    return f"{queue}.dlq"


def resources(spec: QueueSpec) -> Iterator[Resource]:
    """Yield what *spec* needs, in the order in which it can be declared."""
    yield Exchange(name=spec.exchange, kind=conf.exchange_type)
    yield from _dead_letters(spec.name)
    yield Queue(name=spec.name, arguments=_work_arguments(spec.name))
    yield Exchange(name=retry_exchange(spec.name), kind="direct")
    for delay in sorted(set(spec.delays) - {0.0}):
        yield Queue(name=tier(spec.name, delay), arguments=_tier_arguments(spec.name, delay))
        yield Bind(
            queue=tier(spec.name, delay), exchange=retry_exchange(spec.name), key=label(delay)
        )
    for pattern in spec.patterns:
        yield Bind(queue=spec.name, exchange=spec.exchange, key=pattern)


def _dead_letters(queue: str) -> Iterator[Resource]:
    name = dead_letter_queue(queue)
    limit = {"x-delivery-limit": _NO_LIMIT} if _is_quorum() else {}
    yield Exchange(name=name, kind="fanout")
    yield Queue(name=name, arguments={**_type(), **limit})
    yield Bind(queue=name, exchange=name, key="")


def _work_arguments(queue: str) -> dict[str, Any]:
    limit = {"x-delivery-limit": _DELIVERY_LIMIT} if _is_quorum() else {}
    return {
        **_type(),
        **_at_least_once(),
        **limit,
        "x-dead-letter-exchange": dead_letter_queue(queue),
    }


def _tier_arguments(queue: str, delay: float) -> dict[str, Any]:
    # One queue per delay: RabbitMQ expires messages at the head of a queue only, so mixed
    # delays would hold each other up. Back through the default exchange, to this queue alone.
    return {
        **_type(),
        **_at_least_once(),
        "x-message-ttl": round(delay * 1000),
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": queue,
    }


def _type() -> dict[str, Any]:
    return {"x-queue-type": conf.queue_type}


def _at_least_once() -> dict[str, Any]:
    # Without reject-publish the broker falls back to at-most-once, and says so in its log only.
    if not _is_quorum():
        return {}
    return {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}


def _is_quorum() -> bool:
    return conf.queue_type == "quorum"


def target_of(address: Address) -> tuple[str, str]:
    """Return the exchange and the routing key that *address* means."""
    match address:
        case ToExchange(exchange=exchange, routing_key=routing_key):
            return exchange, routing_key
        case ToQueue(queue=queue):
            return "", queue
        case ToTier(queue=queue, delay=delay) if not delay:
            return "", queue
        case ToTier(queue=queue, delay=delay):
            return retry_exchange(queue), label(delay)


def declare(connection: BrokerConnection, specs: Sequence[QueueSpec]) -> None:
    """Make everything exist that *specs* need. Raise BrokerRefused if the broker will not."""
    channel = connection.channel()
    for resource in [each for spec in specs for each in resources(spec)]:
        _declare_one(connection, channel, resource)


def _declare_one(connection: BrokerConnection, channel: Any, resource: Resource) -> None:
    def question(answer: Callable[[Any], None], fail: Callable[[Exception], None]) -> None:
        channel.add_on_close_callback(lambda closed, reason: fail(_refusal(resource, reason)))
        _send(channel, resource, answer)

    connection.ask(question)


def _send(channel: Any, resource: Resource, answer: Callable[[Any], None]) -> None:
    match resource:
        case Exchange(name=name, kind=kind):
            channel.exchange_declare(name, exchange_type=kind, durable=True, callback=answer)
        case Queue(name=name, arguments=arguments):
            channel.queue_declare(name, durable=True, arguments=arguments, callback=answer)
        case Bind(queue=queue, exchange=exchange, key=key):
            channel.queue_bind(queue, exchange, key, callback=answer)


def _refusal(resource: Resource, reason: Any) -> Exception:
    code, text = getattr(reason, "reply_code", 0), getattr(reason, "reply_text", str(reason))
    if code in (403, 404, 405, 406):
        name = resource.queue if isinstance(resource, Bind) else resource.name
        return BrokerRefused(f"The broker refused {name!r}: {text}")
    return BrokerUnavailable("The connection was lost.")
