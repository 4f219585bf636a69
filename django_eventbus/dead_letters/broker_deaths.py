"""Read from x-death why the broker dead-lettered a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from django_eventbus.events.message import FINAL_ERROR, FINAL_KIND, ORIGINAL_QUEUE, Message

#: The reasons in x-death, and what they mean.
REASONS = {
    "delivery_limit": "it was delivered more often than the queue's delivery limit allows",
    "expired": "it expired in the queue, by a policy's or its publisher's time to live",
    "maxlen": "the queue was full, and the broker dropped it",
    "rejected": "a consumer rejected it without returning it to the queue",
}
_FOREIGN = "something other than this service's consumer put it into the DLQ"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDeath:
    """Why a message was dead-lettered, according to its headers."""

    #: A key of REASONS, "foreign", or the kind with which a consumer parked it.
    kind: str
    error: str
    error_type: str = ""
    at: datetime | None = None
    #: Whether a consumer parked it, and not the broker or another program.
    is_parked: bool = False


def broker_death(message: Message, queue: str) -> BrokerDeath:
    """Return why *message* is in the DLQ of *queue*."""
    death = _death_entry(message, queue)
    at = _time(death.get("time")) or message.sent_at
    final = message.headers.get(FINAL_ERROR)
    if isinstance(final, str) or message.text(FINAL_KIND):
        name, colon, words = str(final or "").partition(": ")
        is_named = bool(colon) and name.isidentifier()
        return BrokerDeath(
            kind=message.text(FINAL_KIND) or "failed",
            error_type=name if is_named else "",
            error=words if is_named else str(final or ""),
            at=at,
            is_parked=True,
        )
    reason = _reason(message, death)
    if reason in REASONS:
        return BrokerDeath(kind=reason, error=REASONS[reason], at=at)
    return BrokerDeath(kind="foreign", error=_FOREIGN, at=at)


def owning_queue(message: Message, queues: Sequence[str]) -> str:
    """Return the one of *queues* that the message belongs to, or the first. They share a DLQ."""
    candidates = [
        message.text(ORIGINAL_QUEUE),
        *(str(each.get("queue")) for each in _death_entries(message)),
    ]
    return next((each for each in candidates if each in queues), queues[0])


def with_original_route(message: Message, queue: str) -> Message:
    """Return *message* with its exchange and routing key from before it was dead-lettered."""
    death = _death_entry(message, queue)
    exchange, keys = death.get("exchange"), death.get("routing-keys")
    if not isinstance(exchange, str) or not isinstance(keys, list) or not keys:
        return message
    key = keys[0] if isinstance(keys[0], str) else message.routing_key
    return replace(message, exchange=exchange, routing_key=key)


def has_expired(message: Message) -> bool:
    """Whether the broker moved *message* because its time in a queue, such as a tier, was over."""
    return any(each.get("reason") == "expired" for each in _death_entries(message))


def _death_entry(message: Message, queue: str) -> Mapping[str, Any]:
    """Return the entry of x-death for *queue*. A retried message also has one for its tier."""
    deaths = _death_entries(message)
    here = (each for each in deaths if each.get("queue") == queue)
    return next(here, deaths[0] if deaths else {})


def _death_entries(message: Message) -> list[Mapping[str, Any]]:
    listed = message.headers.get("x-death")
    if not isinstance(listed, list):
        return []
    return [each for each in listed if isinstance(each, Mapping)]


def _reason(message: Message, death: Mapping[str, Any]) -> str:
    # x-first-death-reason comes last: it may be about a tier.
    found = death.get("reason") or message.text("x-last-death-reason")
    return str(found or message.text("x-first-death-reason"))


def _time(value: object) -> datetime | None:
    if not isinstance(value, datetime):
        return None
    return value if value.tzinfo else value.replace(tzinfo=UTC)
