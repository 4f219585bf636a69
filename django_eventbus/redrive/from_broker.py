"""Read the DLQ of a broker, and re-drive messages from it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.utils import timezone

from django_eventbus.conf import conf
from django_eventbus.dead_letters import audit
from django_eventbus.dead_letters.broker_deaths import (
    broker_death,
    owning_queue,
    with_original_route,
)
from django_eventbus.dead_letters.parking import highest_round
from django_eventbus.events.formats import recognised
from django_eventbus.events.message import (
    ORIGINAL_QUEUE,
    REDRIVEN_AT,
    REDRIVEN_BY,
    REDRIVEN_COUNT,
    RETRY_COUNT,
    Message,
)
from django_eventbus.events.text import storable
from django_eventbus.exceptions import UnknownQueue
from django_eventbus.models.reasons import StayReason
from django_eventbus.observability.tracing.spans import redriven
from django_eventbus.outages import proven
from django_eventbus.subscriptions.subscription import registry
from django_eventbus.transports.contract import (
    Confirmed,
    Delivery,
    Outgoing,
    Receipt,
    Rejected,
    Subscriber,
    ToQueue,
    Transport,
    Unroutable,
)

#: Seconds without a message after which the queue counts as empty.
_SILENCE = 1.0
_BATCH = 50

#: A quorum queue delivers at most 2,000 unsettled messages, even with a higher prefetch.
_MOST_UNSETTLED = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterQueue:
    """A DLQ, and the queues of this project that it belongs to."""

    name: str
    queues: Sequence[str]


def find_dead_letter_queue(transport: Transport, name: str) -> DeadLetterQueue:
    """Return the DLQ *name*, or the DLQ of the queue *name*, or raise UnknownQueue."""
    owners: dict[str, list[str]] = {}
    for queue in registry.queues():
        if dlq := transport.dead_letter_queue(queue):
            owners.setdefault(dlq, []).append(queue)
    for dlq, queues in owners.items():
        if name == dlq or {name, conf.queue(name)} & set(queues):
            return DeadLetterQueue(name=dlq, queues=queues)
    if not owners:
        raise UnknownQueue("There is no DLQ here: dead letters are in the database, see the admin.")
    dlqs = ", ".join(owners)
    raise UnknownQueue(f"{name!r} is not a queue of this project. The DLQs are {dlqs}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DlqMessage:
    """A message in a DLQ."""

    message: Message
    #: Where a re-drive would send it.
    queue: str

    def facts(self, now: datetime) -> dict[str, Any]:
        """Return the facts about it for people, without the payload."""
        death = broker_death(self.message, self.queue)
        return {
            "id": self.message.identified().id,
            "type": storable(self.message.type, 255),
            "reason": death.kind,
            "error": storable(f"{death.error_type}: {death.error}".removeprefix(": "), 500),
            "attempts": self.message.attempt,
            "round": self.message.round,
            "age_seconds": round((now - death.at).total_seconds()) if death.at else None,
            "bytes": len(self.message.body),
            "queue": self.queue,
        }


def peek(transport: Transport, dlq: DeadLetterQueue, limit: int) -> list[DlqMessage]:
    """Return the first messages of *dlq* without removing them."""
    # close() returns the messages in their order, but behind messages that were returned before.
    # Before RabbitMQ 4.3 a release() would put them at the end of a queue without delivery limit.
    limit = min(limit, _MOST_UNSETTLED)
    with closing(transport.subscriber([dlq.name], prefetch=limit)) as subscriber:
        return [_dlq_message(each, dlq) for each in _received(subscriber, limit)]


def _received(subscriber: Subscriber, limit: int) -> Iterator[Delivery]:
    for _ in range(limit):
        delivery = subscriber.receive(_SILENCE)
        if delivery is None:
            return
        yield delivery


def _dlq_message(delivery: Delivery, dlq: DeadLetterQueue) -> DlqMessage:
    queue = owning_queue(delivery.message, dlq.queues)
    message = recognised(with_original_route(delivery.message, queue), conf.max_body_bytes)
    return DlqMessage(message=message, queue=queue)


class Stay(NamedTuple):
    """Why a message stays in the DLQ."""

    reason: str
    detail: str = ""


@dataclass(slots=True, kw_only=True)
class DlqRedriveResult:
    """The messages that a re-drive from the broker moved, and those that stay in the DLQ."""

    moved: list[str] = field(default_factory=list)
    #: The messages that stay in the DLQ, by id: a StayReason and its detail.
    left: dict[str, Stay] = field(default_factory=dict)


class BrokerRedrive:
    """Sends messages of a DLQ back to their queues; acks each after its copy is confirmed."""

    def __init__(
        self, transport: Transport, dlq: DeadLetterQueue, *, by: str, stop: threading.Event
    ) -> None:
        self.transport = transport
        self.dlq = dlq
        self.by = storable(by, 255)
        self.stop = stop
        self.began_at = timezone.now()

    def run(self, limit: int) -> DlqRedriveResult:
        """Move at most *limit* messages; stop between two batches if *stop* is set."""
        moved = DlqRedriveResult()
        prefetch = min(limit, _MOST_UNSETTLED)
        with (
            closing(self.transport.publisher()) as self.publisher,
            closing(self.transport.subscriber([self.dlq.name], prefetch)) as subscriber,
        ):
            while limit > 0 and not self.stop.is_set():
                batch = list(_received(subscriber, min(limit, _BATCH)))
                self._move(batch, moved)
                limit = limit - len(batch) if len(batch) == _BATCH else 0
        return moved

    def _move(self, batch: Sequence[Delivery], moved: DlqRedriveResult) -> None:
        going: list[tuple[Delivery, Outgoing]] = []
        for delivery in batch:
            if stay := self._reason_to_stay(delivery.message):
                moved.left[delivery.message.identified().id] = stay
            else:
                going.append((delivery, self._outgoing(delivery)))
        if not going:
            return
        receipts = self.publisher.publish([outgoing for _, outgoing in going])
        sys.audit("eventbus.broker_redrive.published")
        for (delivery, outgoing), receipt in zip(going, receipts, strict=True):
            if isinstance(receipt, Confirmed):
                delivery.ack()
                moved.moved.append(outgoing.message.id)
            else:
                moved.left[outgoing.message.id] = _refusal(receipt)

    def _reason_to_stay(self, message: Message) -> Stay | None:
        redriven_at = message.redriven_at
        if redriven_at and redriven_at >= self.began_at:
            return Stay(StayReason.RETURNED)
        owner = message.text(ORIGINAL_QUEUE)
        is_ours = not owner or owner in self.dlq.queues
        return None if is_ours else Stay(StayReason.OTHER_QUEUE, owner)

    def _outgoing(self, delivery: Delivery) -> Outgoing:
        found = _dlq_message(delivery, self.dlq)
        round_ = _next_round(found)
        message = found.message.identified().copy_for(
            found.queue,
            **{
                RETRY_COUNT: 0,
                REDRIVEN_AT: timezone.now().isoformat(),
                REDRIVEN_BY: self.by,
                REDRIVEN_COUNT: round_,
                **redriven(found.message, found.queue, round_),
            },
        )
        return Outgoing(address=ToQueue(queue=found.queue), message=message)


def _next_round(found: DlqMessage) -> int:
    """Return a round above all known ones: the inbox skips a copy that is not newer."""
    message_id = found.message.identified().id
    rounds = [found.message.round]
    for using in registry.databases():
        with proven(using):
            rounds.append(highest_round(message_id, using))
    return max(rounds) + 1


def _refusal(receipt: Receipt) -> Stay:
    match receipt:
        case Unroutable():
            return Stay(StayReason.NO_QUEUE)
        case Rejected(reason=reason):
            return Stay(StayReason.REJECTED, reason)
    return Stay(StayReason.NOT_ACCEPTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class DlqAudit:
    """Records a request about queues in the audit: one entry before it runs, and one after."""

    queues: Sequence[str]
    by: str
    why: str
    using: str

    def record_request(self, kind: str, limit: int) -> None:
        """Record that the request is going to run for at most *limit* messages."""
        self._record(f"{kind} DLQ", limit, {})

    def redrove(self, moved: int, left: int) -> None:
        self._record("redrove DLQ", moved, {"moved": moved, "left": left})

    def failed_to_redrive(self, error: Exception) -> None:
        self._record("redrove DLQ", 0, {"failed": str(error)})

    def _record(self, verb: str, count: int, outcome: dict[str, int | str]) -> None:
        audit.record(
            verb,
            by=self.by,
            why=self.why,
            selection=urlencode([("queue", queue) for queue in self.queues]),
            using=self.using,
            count=count,
            outcome=outcome,
        )
