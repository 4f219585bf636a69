"""Collect what lies in the broker's DLQ into dead letters."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from django.db import transaction
from msgspec.structs import replace

from django_eventbus.consumer import Consumer, database_of
from django_eventbus.dead_letters import Cause, park
from django_eventbus.deaths import Death, as_it_was, death_of
from django_eventbus.deliveries import ReadDelivery
from django_eventbus.messages import Message
from django_eventbus.models import DeadLetter, InboxRecord
from django_eventbus.outages import proven
from django_eventbus.outcomes import Duplicate, Park
from django_eventbus.settlements import Settlement
from django_eventbus.subscriptions import Subscription, registry
from django_eventbus.transports.contract import Delivery


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadDelivery:
    """A delivery from a DLQ, seen as one of the queue that it belonged to."""

    delivery: Delivery
    queue: str

    @property
    def message(self) -> Message:
        # An answer would say that the queue is consumed, which is not what was asked of a DLQ.
        return replace(as_it_was(self.delivery.message, self.queue), reply_to="")

    @property
    def is_redelivered(self) -> bool:
        return self.delivery.is_redelivered

    def ack(self) -> None:
        self.delivery.ack()

    def release(self, after: float = 0) -> None:
        self.delivery.release(after)


class Collector(Consumer):
    """
    A consumer of DLQs: nothing is run, and what is not settled yet becomes a dead letter.

    One for each subscription that the message was for and that has not settled it: what has
    an effect gets no dead letter beside it, and a recorded retry is sent again instead.
    """

    def _settlements(self, delivery: ReadDelivery) -> Iterator[Settlement]:
        death = death_of(delivery.message, delivery.queue)
        known = registry.receivers(delivery.queue, delivery.message)
        subscriptions = [] if delivery.problem else known
        for each in subscriptions:
            yield _collected(delivery, each, death)
        if not subscriptions:
            yield _collected_unreached(delivery, death)
        sys.audit("eventbus.collector.recorded")


def _collected(delivery: Delivery, subscription: Subscription, death: Death) -> Settlement:
    message, using = delivery.message, subscription.using
    name = subscription.record_name
    with proven(using), transaction.atomic(using=using):
        records = InboxRecord.objects.using(using)
        record = records.claim(name, delivery.queue, message, InboxRecord.State.PARKED)
        answer = record.answer_to(message)
        if answer is None:
            # Recorded too, so that another copy of the same attempt has no effect beside it.
            record.parked(message, death.error)
        if answer is None or answer.state == InboxRecord.State.PARKED:
            cause = _cause(death)
            park(message, cause, subscription=name, queue=delivery.queue, using=using)
    outcome = answer or _outcome(death)
    return Settlement(subscription=subscription, outcome=outcome)


def _collected_unreached(delivery: Delivery, death: Death) -> Settlement:
    using = database_of(delivery.queue)
    name = delivery.message.subscription
    with proven(using):
        park(delivery.message, _cause(death), subscription=name, queue=delivery.queue, using=using)
    return Settlement(subscription=None, outcome=_outcome(death))


def _outcome(death: Death) -> Park | Duplicate:
    # The consumer that parked it has announced that already.
    if death.is_parked:
        return Duplicate(state=InboxRecord.State.PARKED)
    return Park(kind=death.kind, reason=death.error)


def _cause(death: Death) -> Cause:
    kind = death.kind if death.kind in DeadLetter.Kind.values else DeadLetter.Kind.FAILED
    return Cause(kind=kind, error_type=death.error_type, error=death.error)
