"""Ping every queue of the bus, and answer such pings. Nothing of it is recorded."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from django_eventbus.conf import conf
from django_eventbus.exceptions import BrokerUnavailable
from django_eventbus.messages import Message
from django_eventbus.routing import EVENTS, exchange_of
from django_eventbus.system_events import PATTERN, PING, Answer, answer_in, ping_of, pong_to
from django_eventbus.transports.contract import (
    Confirmed,
    Delivery,
    Outgoing,
    Publisher,
    ReplyBox,
    ToExchange,
    ToReply,
    Transport,
    Unroutable,
)

#: How long others have to answer once everybody did who had to, in seconds.
_QUIET = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTrip:
    """What came of a ping to one queue; *seconds* is None if it is silent."""

    answer: Answer
    seconds: float | None


def answer_ping(delivery: Delivery, publisher: Publisher) -> None:
    """Send the answer if *delivery* is a ping that waits for one."""
    message = delivery.message
    if pong := pong_to(message, delivery.queue, conf.service):
        # Whatever the receipt says: nobody may be waiting any more, and an answer that is
        # sent again later would only mislead.
        publisher.publish([Outgoing(address=ToReply(reply_to=message.reply_to), message=pong)])
        sys.audit("eventbus.pings.answered")


def ping(transport: Transport, expected: Collection[str], timeout: float) -> list[RoundTrip]:
    """Ping all queues; return who answered, and those *expected* that did not."""
    box = transport.reply_box()
    try:
        found: dict[str, RoundTrip] = {}
        for trip in _answered(box, set(expected), timeout):
            # The first: a consumer that died before its ack has another answer.
            found.setdefault(trip.answer.queue, trip)
    finally:
        box.close()
    silent = sorted(set(expected) - set(found))
    return [found[queue] for queue in sorted(found)] + [
        RoundTrip(answer=Answer(queue=queue), seconds=None) for queue in silent
    ]


def _answered(box: ReplyBox, missing: set[str], timeout: float) -> Iterator[RoundTrip]:
    message, began = ping_of(conf.service), time.monotonic()
    if not _sent(box, message):
        return
    deadline = began + timeout
    while (left := deadline - time.monotonic()) > 0:
        pong = box.receive(left if missing else min(left, _QUIET))
        if pong is None:
            return
        answer = answer_in(pong) if pong.correlation_id == message.id else None
        if answer:
            missing.discard(answer.queue)
            yield RoundTrip(answer=answer, seconds=time.monotonic() - began)


def _sent(box: ReplyBox, message: Message) -> bool:
    """Whether any queue got the ping. Raise BrokerUnavailable if that cannot be told."""
    place = ToExchange(
        exchange=exchange_of(EVENTS, PATTERN), routing_key=EVENTS.routing_key_of(PING, 1)
    )
    receipt = box.ask(place, message)
    if not isinstance(receipt, Confirmed | Unroutable):
        raise BrokerUnavailable(f"The broker did not take the ping: {receipt.reason}.")
    return isinstance(receipt, Confirmed)
