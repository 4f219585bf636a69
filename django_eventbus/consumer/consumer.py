"""Settle a delivery: read it, run its subscriptions, acknowledge it last."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from django.db import DEFAULT_DB_ALIAS
from django.utils import timezone
from msgspec.structs import replace

from django_eventbus.conf import conf
from django_eventbus.consumer.announcements import announce_settlement
from django_eventbus.consumer.deliveries import ReadDelivery
from django_eventbus.consumer.failures import Parking
from django_eventbus.consumer.inbox import Inbox
from django_eventbus.consumer.last_resort import LastResort
from django_eventbus.dead_letters.broker_deaths import has_expired
from django_eventbus.dead_letters.parking import (
    Discarded,
    find_discard,
    heal_unreached,
    highest_round,
)
from django_eventbus.events.message import (
    ORIGINAL_QUEUE,
    REDRIVEN_COUNT,
    RETRY_COUNT,
    SUBSCRIPTION,
    Message,
)
from django_eventbus.events.system import is_system_event, pong_to
from django_eventbus.exceptions import (
    BadSetting,
    BrokerRefused,
    BrokerUnavailable,
    Busy,
    Unavailable,
    Undecodable,
    Unmatched,
)
from django_eventbus.models import InboxRecord
from django_eventbus.observability.tracing.spans import process_span
from django_eventbus.outages import proven
from django_eventbus.subscriptions.outcomes import Defer, Duplicate, Park, Retry, Skipped
from django_eventbus.subscriptions.retries import DecisionTime, decide
from django_eventbus.subscriptions.subscription import Arrival, Settlement, policy_for, registry
from django_eventbus.transports.contract import (
    Confirmed,
    Delivery,
    Outgoing,
    Publisher,
    Receipt,
    Rejected,
    ToReply,
    ToTier,
)

logger = logging.getLogger("django_eventbus.consumer")

#: Seconds until a message is delivered again if another worker is handling it.
_BUSY_PAUSE = 1.0

#: The same in an outage: without a pause the broker would deliver and count it at once.
_OUTAGE_PAUSE = 1.0


_NOT_ABOUT_A_MESSAGE = (BadSetting, BrokerRefused, Busy, Unavailable)


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
        self.last_resort = LastResort()

    def consume(self, delivery: Delivery) -> list[Settlement]:
        """Settle *delivery*. Raise Unavailable, with the delivery returned, in an outage."""
        read = ReadDelivery(delivery)
        settlements: list[Settlement] = []
        try:
            if read.message.round:
                read.message = _with_possible_round(read)
            if is_system_event(read.message):
                answer_ping(read, self.publisher)
            else:
                self._settle(read, settlements)
            self._act(read, settlements)
            self.last_resort.note_success(settlements)
        except Busy:
            read.release(_BUSY_PAUSE)
        except Unavailable:
            _return(read)
            raise
        except _NOT_ABOUT_A_MESSAGE:
            raise
        # Errors of handlers are recorded. Without this, a message that cannot be recorded would
        # end the process, and again after each restart.
        except Exception as error:
            self._settle_as_it_arrived(read, settlements, error)
        finally:
            # Also if a later subscription was busy: next time the settled ones are duplicates.
            for settlement in settlements:
                announce_settlement(Consumer, read, settlement)
        return settlements

    def _settle(self, delivery: ReadDelivery, settlements: list[Settlement]) -> None:
        """Append the settlement of *delivery* for each subscription to *settlements*."""
        if other := _meant_for(delivery):
            settlements.append(_skipped(f"the message is for {other}"))
            return
        if delivery.problem:
            settlements.append(self._settle_unreached(delivery, delivery.problem))
            return
        # For a message that is addressed to a subscription, the inbox checks this itself.
        is_unreached = bool(delivery.message.round and not delivery.message.subscription)
        if is_unreached and (discard := _find_discard(delivery)):
            settlements.append(_skipped(str(discard)))
            return
        subscriptions = registry.receivers(delivery.queue, delivery.message)
        if not subscriptions:
            settlements.append(self._settle_unreached(delivery, _unmatched(delivery)))
            return
        arrival = Arrival(
            message=delivery.message,
            payload=delivery.payload,
            queue=delivery.queue,
            is_redelivered=delivery.is_redelivered,
        )
        for each in subscriptions:
            try:
                with process_span(each, arrival) as span:
                    settlements.append(span.settled(self.inbox.handle_once(each, arrival)))
            except _NOT_ABOUT_A_MESSAGE:
                raise
            # Caught for each: the others have nothing to do with it, and are handled.
            except Exception as error:
                settlements += self.last_resort.settle(delivery, [each], each.using, error)
        if is_unreached:
            _heal_unreached(delivery)

    def _settle_as_it_arrived(
        self, delivery: ReadDelivery, settlements: list[Settlement], error: Exception
    ) -> None:
        receivers = [] if delivery.problem else registry.receivers(delivery.queue, delivery.message)
        using = database_of(delivery.queue)
        try:
            settlements += self.last_resort.settle(delivery, receivers, using, error)
        except Unavailable:
            _return(delivery)
            raise
        delivery.ack()

    def _act(self, delivery: Delivery, settlements: Sequence[Settlement]) -> None:
        pauses = [pause for each in settlements if (pause := _pause(each)) is not None]
        if pauses and registry.is_ordered(delivery.queue):
            # Returned to its queue, not sent to a tier: later messages would overtake it.
            delivery.release(max(pauses))
            return
        self._send_copies(delivery, settlements)
        # Last: if the process dies before this line, the delivery is settled again as recorded.
        delivery.ack()
        sys.audit("eventbus.consumer.acked")

    def _settle_unreached(self, delivery: Delivery, error: Undecodable | Unmatched) -> Settlement:
        """Settle a delivery that reaches no subscription, without an inbox record."""
        # A retry or a re-drive is never ignored: a handler of this service has failed on it.
        is_news = isinstance(error, Unmatched) and not delivery.message.subscription
        if is_news and conf.unmatched == "ignore":
            return Settlement(subscription=None, outcome=Skipped(reason=str(error)), error=error)
        if state := _final_state(delivery):
            return Settlement(subscription=None, outcome=Duplicate(state=state))
        if delivery.message.round and (discard := _find_discard(delivery)):
            return _skipped(str(discard))
        policy = policy_for(delivery.message, registry.ordered_on(delivery.queue))
        now = timezone.now()
        when = DecisionTime(now=now, since=self._tried_since(delivery), latest=now)
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
        """Return the time of the first attempt of a delivery that has no inbox record."""
        return timezone.now()

    def _send_copies(self, delivery: Delivery, settlements: Iterable[Settlement]) -> None:
        copies = [copy for each in settlements if (copy := _copy(delivery, each))]
        receipts = self.publisher.publish(copies) if copies else ()
        pairs = list(zip(copies, receipts, strict=True))
        if rejected := [copy for copy, receipt in pairs if isinstance(receipt, Rejected)]:
            # Some headers can be received but not sent. Waiting would not help.
            logger.warning("The retry of %s is sent without its headers.", delivery.message.id)
            stripped = [replace(copy, message=copy.message.stripped()) for copy in rejected]
            receipts = [*self.publisher.publish(stripped), *_others(pairs)]
        if not all(isinstance(receipt, Confirmed) for receipt in receipts):
            words = f"The broker did not confirm a retry through {delivery.queue}."
            raise BrokerUnavailable(words, kind="channel")
        if copies:
            sys.audit("eventbus.consumer.copied")


def answer_ping(delivery: Delivery, publisher: Publisher) -> None:
    """Send the answer if *delivery* is a ping that waits for one."""
    message = delivery.message
    if pong := pong_to(message, delivery.queue, conf.service):
        # The receipt is ignored: the caller may have gone, and a late answer would mislead.
        publisher.publish([Outgoing(address=ToReply(reply_to=message.reply_to), message=pong)])
        sys.audit("eventbus.pings.answered")


def _skipped(reason: str) -> Settlement:
    return Settlement(subscription=None, outcome=Skipped(reason=reason))


def _others(pairs: Sequence[tuple[Outgoing, Receipt]]) -> list[Receipt]:
    return [receipt for _, receipt in pairs if not isinstance(receipt, Rejected)]


def _meant_for(delivery: Delivery) -> str:
    """Return the name of another queue that the copy is for, or ""."""
    # If tiers return through a shared exchange, every bound queue receives every copy. Otherwise
    # a copy returns to its own queue only, and the header is a mistake or a lie.
    if not conf.names["tier_return_exchange"] or not has_expired(delivery.message):
        return ""
    meant = delivery.message.text(ORIGINAL_QUEUE)
    return meant if meant and meant != delivery.queue else ""


def _unmatched(delivery: Delivery) -> Unmatched:
    message = delivery.message
    if registry.named(message.subscription):
        return Unmatched(
            f"the subscription {message.subscription!r} is not on {delivery.queue}, or does not "
            f"match {message.type!r}"
        )
    if message.subscription:
        return Unmatched(
            f"this project has no subscription {message.subscription!r}; if it was renamed, "
            f"add aliases=[{message.subscription!r}] to the new one"
        )
    return Unmatched(f"no subscription on {delivery.queue} matches {message.type!r}")


def _with_possible_round(delivery: Delivery) -> Message:
    """Return the message with a round that is at most one above the highest that is recorded."""
    # The round is a header, which anybody may send. A higher one could never be re-driven.
    message = delivery.message.identified()
    highest = 0
    for using in {each.using for each in registry.on_queue(delivery.queue)} or {DEFAULT_DB_ALIAS}:
        with proven(using):
            highest = max(highest, highest_round(message.id, using))
    headers = {**delivery.message.headers, REDRIVEN_COUNT: min(message.round, highest + 1)}
    return replace(delivery.message, headers=headers)


def _heal_unreached(delivery: Delivery) -> None:
    using = database_of(delivery.queue)
    with proven(using):
        heal_unreached(delivery.message, queue=delivery.queue, using=using)


def _final_state(delivery: Delivery) -> str:
    """Return the final inbox state for a subscription that this project no longer has, or ""."""
    if not delivery.message.subscription:
        return ""
    using = database_of(delivery.queue)
    with proven(using):
        records = InboxRecord.objects.using(using)
        found = records.known(delivery.message.subscription, delivery.message.id)
    return found.state if found and found.is_final else ""


def _find_discard(delivery: Delivery) -> Discarded | None:
    using = database_of(delivery.queue)
    with proven(using):
        return find_discard(delivery.message, queue=delivery.queue, using=using)


def database_of(queue: str) -> str:
    """Return the database for dead letters of *queue* that reached no subscription."""
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
    """Return the seconds until the message is tried again, or None."""
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
        logger.debug(
            "The broker returns %s when it notices the lost connection.", delivery.message.id
        )
