"""Take deliveries to their outcome and settle them. No threads and no pika in here."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime

from django.db import DEFAULT_DB_ALIAS
from django.utils import timezone
from msgspec.structs import replace

from django_eventbus.announcing import tell
from django_eventbus.conf import conf
from django_eventbus.dead_letters import heal_unreached, why_discarded
from django_eventbus.deliveries import ReadDelivery
from django_eventbus.exceptions import BrokerUnavailable, Busy, Unavailable, Undecodable, Unmatched
from django_eventbus.inbox import Inbox
from django_eventbus.messages import ORIGINAL_QUEUE, RETRY_COUNT, SUBSCRIPTION
from django_eventbus.models import InboxRecord
from django_eventbus.outages import proven
from django_eventbus.outcomes import Defer, Duplicate, Park, Retry, Skipped
from django_eventbus.parking import Parking
from django_eventbus.pings import answer_ping
from django_eventbus.retries import Moment, decide
from django_eventbus.settlements import Arrival, Settlement
from django_eventbus.subscriptions import policy_for, registry
from django_eventbus.system_events import is_system_event
from django_eventbus.tracing.processing import traced
from django_eventbus.transports.contract import (
    Confirmed,
    Delivery,
    Outgoing,
    Publisher,
    Receipt,
    Rejected,
    ToTier,
)

logger = logging.getLogger(__name__)

#: Seconds until a message is delivered again that another worker was just handling.
_BUSY_PAUSE = 1.0
#: Likewise, in an outage: what is returned at once comes at once, and the broker counts it.
_OUTAGE_PAUSE = 1.0


class Consumer:
    """Record, then act, then ack. Safe to use from many threads if its publisher is."""

    def __init__(
        self,
        publisher: Publisher,
        dead_letter_queue: Callable[[str], str | None] = lambda queue: None,
    ) -> None:
        self.publisher = publisher
        self.parking = Parking(publisher, dead_letter_queue)
        self.inbox = Inbox(self.parking)

    def consume(self, delivery: Delivery) -> list[Settlement]:
        """Settle *delivery*. Raise Unavailable, with the delivery returned, in an outage."""
        return self._settle(ReadDelivery(delivery))

    def _settle(self, delivery: ReadDelivery) -> list[Settlement]:
        settlements: list[Settlement] = []
        try:
            if is_system_event(delivery.message):
                answer_ping(delivery, self.publisher)
            else:
                for settlement in self._settlements(delivery):
                    settlements.append(settlement)
            self._act(delivery, settlements)
        except Busy:
            delivery.release(_BUSY_PAUSE)
        except Unavailable:
            _return(delivery)
            raise
        finally:
            # Also what was settled before a sibling was busy: next time it is a duplicate.
            for settlement in settlements:
                tell(Consumer, delivery, settlement)
        return settlements

    def _act(self, delivery: Delivery, settlements: Sequence[Settlement]) -> None:
        pauses = [pause for each in settlements if (pause := _pause(each)) is not None]
        if pauses and registry.is_ordered(delivery.queue):
            # Back to its place, not to a tier: what is behind it would come first.
            delivery.release(max(pauses))
            return
        self._send_copies(delivery, settlements)
        # Last: whatever dies before this line is done again, as recorded.
        delivery.ack()
        sys.audit("eventbus.consumer.acked")

    def _settlements(self, delivery: ReadDelivery) -> Iterator[Settlement]:
        if other := _meant_for(delivery):
            yield Settlement(subscription=None, outcome=Skipped(reason=f"it is for {other}"))
            return
        if delivery.problem:
            yield self._settle_unreached(delivery, delivery.problem)
            return
        # What is addressed to a subscription is known to the inbox, which looks for itself.
        is_unreached = bool(delivery.message.round and not delivery.message.subscription)
        if is_unreached and (reason := _why_discarded(delivery)):
            yield Settlement(subscription=None, outcome=Skipped(reason=reason))
            return
        subscriptions = registry.receivers(delivery.queue, delivery.message)
        if not subscriptions:
            yield self._settle_unreached(delivery, _unmatched(delivery))
            return
        arrival = Arrival(
            message=delivery.message,
            payload=delivery.payload,
            queue=delivery.queue,
            is_redelivered=delivery.is_redelivered,
        )
        for each in subscriptions:
            yield traced(self.inbox.handle_once, each, arrival)
        if is_unreached:
            _heal_unreached(delivery)

    def _settle_unreached(self, delivery: Delivery, error: Undecodable | Unmatched) -> Settlement:
        """Settle what no subscription can be given: no inbox record, since nothing was done."""
        # A copy of our own is never ignored: it is under way because something here failed.
        is_news = isinstance(error, Unmatched) and not delivery.message.subscription
        if is_news and conf.unmatched == "ignore":
            return Settlement(subscription=None, outcome=Skipped(reason=str(error)), error=error)
        if state := _final_state(delivery):
            return Settlement(subscription=None, outcome=Duplicate(state=state))
        if delivery.message.round and (reason := _why_discarded(delivery)):
            return Settlement(subscription=None, outcome=Skipped(reason=reason))
        policy = policy_for(delivery.message, registry.ordered_on(delivery.queue))
        now = timezone.now()
        when = Moment(now=now, since=self._tried_since(delivery), latest=now)
        outcome = decide(error, delivery.message.attempt, policy, when)
        if isinstance(outcome, Park):
            using = database_of(delivery.queue)
            with proven(using):
                self.parking.park(
                    delivery.message,
                    outcome,
                    error,
                    subscription=delivery.message.subscription,
                    queue=delivery.queue,
                    using=using,
                )
        return Settlement(subscription=None, outcome=outcome, error=error)

    def _tried_since(self, delivery: Delivery) -> datetime:
        """Return since when something is tried that has no record."""
        return timezone.now()

    def _send_copies(self, delivery: Delivery, settlements: Iterable[Settlement]) -> None:
        copies = [copy for each in settlements if (copy := _copy(delivery, each))]
        receipts = self.publisher.publish(copies) if copies else ()
        pairs = list(zip(copies, receipts, strict=True))
        if rejected := [copy for copy, receipt in pairs if isinstance(receipt, Rejected)]:
            # A stranger's headers can be received that cannot be sent. Waiting would not help.
            logger.warning("A retry of %s goes without its headers.", delivery.message.id)
            stripped = [replace(copy, message=copy.message.stripped()) for copy in rejected]
            receipts = [*self.publisher.publish(stripped), *_others(pairs)]
        if not all(isinstance(receipt, Confirmed) for receipt in receipts):
            words = f"A retry through {delivery.queue} was not confirmed."
            raise BrokerUnavailable(words, kind="channel")
        if copies:
            sys.audit("eventbus.consumer.copied")


def _others(pairs: Sequence[tuple[Outgoing, Receipt]]) -> list[Receipt]:
    return [receipt for _, receipt in pairs if not isinstance(receipt, Rejected)]


def _meant_for(delivery: Delivery) -> str:
    """Return the other queue that a copy is for, or ""."""
    # Where tiers return through an exchange that others are bound to, everyone gets every copy.
    meant = delivery.message.text(ORIGINAL_QUEUE)
    return meant if meant and meant != delivery.queue else ""


def _unmatched(delivery: Delivery) -> Unmatched:
    message = delivery.message
    if message.subscription:
        return Unmatched(
            f"there is no subscription {message.subscription!r} here; if it was renamed, "
            f"add aliases=[{message.subscription!r}] to the new one"
        )
    return Unmatched(f"nothing on {delivery.queue} subscribes to {message.type!r}")


def _heal_unreached(delivery: Delivery) -> None:
    using = database_of(delivery.queue)
    with proven(using):
        heal_unreached(delivery.message, queue=delivery.queue, using=using)


def _final_state(delivery: Delivery) -> str:
    """Return how a message ended for the subscription it is addressed to, which is not here."""
    if not delivery.message.subscription:
        return ""
    using = database_of(delivery.queue)
    with proven(using):
        records = InboxRecord.objects.using(using)
        found = records.known(delivery.message.subscription, delivery.message.id)
    return found.state if found and found.is_final else ""


def _why_discarded(delivery: Delivery) -> str:
    using = database_of(delivery.queue)
    with proven(using):
        return why_discarded(delivery.message, queue=delivery.queue, using=using)


def database_of(queue: str) -> str:
    """Return where the dead letters of *queue* are that reached no subscription."""
    return next((each.using for each in registry.on_queue(queue)), DEFAULT_DB_ALIAS)


def _copy(delivery: Delivery, settlement: Settlement) -> Outgoing | None:
    """Return the copy that a recorded retry needs, or None."""
    match settlement.outcome:
        case Retry(by_tier=True, delay=delay):
            retries = delivery.message.attempt
        case Duplicate(delay=float() as delay, attempt=retries):
            pass
        case _:
            return None
    changes: dict[str, object] = {RETRY_COUNT: retries}
    if settlement.subscription:
        changes[SUBSCRIPTION] = settlement.subscription.record_name
    copy = delivery.message.copy_for(delivery.queue, **changes)
    return Outgoing(address=ToTier(queue=delivery.queue, delay=delay), message=copy)


def _pause(settlement: Settlement) -> float | None:
    """Return how many seconds a message has to wait before it is tried again."""
    match settlement.outcome:
        case Retry(delay=delay):
            return delay
        case Defer(until=until) | Duplicate(until=datetime() as until):
            return max((until - timezone.now()).total_seconds(), 0.0)
    return None


def _return(delivery: Delivery) -> None:
    try:
        delivery.release(_OUTAGE_PAUSE)
    except Unavailable:
        logger.debug("%s returns by itself when the broker notices.", delivery.message.id)
