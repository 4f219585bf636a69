"""Turn messages that the broker dead-lettered into rows of dead letters."""

from __future__ import annotations

import sys

from django.db import transaction

from django_eventbus.consumer.consumer import Consumer, database_of
from django_eventbus.consumer.deliveries import ReadDelivery
from django_eventbus.dead_letters.broker_deaths import BrokerDeath, broker_death
from django_eventbus.dead_letters.parking import ParkingCause, park
from django_eventbus.models import DeadLetter, InboxRecord
from django_eventbus.outages import proven
from django_eventbus.subscriptions.outcomes import Duplicate, Park
from django_eventbus.subscriptions.subscription import Settlement, Subscription, registry
from django_eventbus.transports.contract import Delivery


class Collector(Consumer):
    """
    A consumer of DLQs: it runs no handler, and turns unsettled messages into dead letters.

    Each subscription of the message that has not settled it gets a dead letter. A subscription
    that handled it gets none, and a recorded retry is sent again instead.
    """

    def _settle(self, delivery: ReadDelivery, settlements: list[Settlement]) -> None:
        death = broker_death(delivery.message, delivery.queue)
        known = registry.receivers(delivery.queue, delivery.message)
        subscriptions = [] if delivery.problem else known
        for each in subscriptions:
            settlements.append(_collected(delivery, each, death))
        if not subscriptions:
            settlements.append(_collected_unreached(delivery, death))
        sys.audit("eventbus.collector.recorded")


def _collected(delivery: Delivery, subscription: Subscription, death: BrokerDeath) -> Settlement:
    message, using = delivery.message, subscription.using
    name = subscription.record_name
    with proven(using), transaction.atomic(using=using):
        records = InboxRecord.objects.using(using)
        record = records.claim(name, delivery.queue, message, InboxRecord.State.PARKED)
        answer = record.answer_to(message)
        if answer is None:
            # Recorded too, so that another copy of the same attempt has no effect.
            record.parked(message, death.error)
        if answer is None or answer.state == InboxRecord.State.PARKED:
            cause = _cause(death)
            park(message, cause, subscription=name, queue=delivery.queue, using=using)
    outcome = answer or _outcome(death)
    return Settlement(subscription=subscription, outcome=outcome)


def _collected_unreached(delivery: Delivery, death: BrokerDeath) -> Settlement:
    using = database_of(delivery.queue)
    name = delivery.message.subscription
    with proven(using):
        park(delivery.message, _cause(death), subscription=name, queue=delivery.queue, using=using)
    return Settlement(subscription=None, outcome=_outcome(death))


def _outcome(death: BrokerDeath) -> Park | Duplicate:
    # The consumer that parked the message has sent the signal already.
    if death.is_parked:
        return Duplicate(state=InboxRecord.State.PARKED)
    return Park(kind=death.kind, reason=death.error)


def _cause(death: BrokerDeath) -> ParkingCause:
    kind = death.kind if death.kind in DeadLetter.Kind.values else DeadLetter.Kind.FAILED
    return ParkingCause(kind=kind, error_type=death.error_type, error=death.error)
