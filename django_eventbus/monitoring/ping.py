"""Send a ping through the bus and wait for the pongs."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from django_eventbus.conf import conf
from django_eventbus.events.message import Message
from django_eventbus.events.routing import EVENTS, exchange_of
from django_eventbus.events.system import PATTERN, PING, Answer, answer_in, ping_of
from django_eventbus.exceptions import BrokerUnavailable
from django_eventbus.transports.contract import (
    Confirmed,
    ReplyBox,
    ToExchange,
    Transport,
    Unroutable,
)

#: Seconds that other queues have to answer after all expected ones did.
_QUIET = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTrip:
    """The answer of one queue to a ping; *seconds* is None if there was none."""

    answer: Answer
    seconds: float | None


def ping(transport: Transport, expected: Collection[str], timeout: float) -> list[RoundTrip]:
    """Ping all queues; return the answers, and the *expected* queues that did not answer."""
    box = transport.reply_box()
    try:
        found: dict[str, RoundTrip] = {}
        for trip in _answers(box, set(expected), timeout):
            # The first answer: a consumer that died before its ack answers again.
            found.setdefault(trip.answer.queue, trip)
    finally:
        box.close()
    silent = sorted(set(expected) - set(found))
    return [found[queue] for queue in sorted(found)] + [
        RoundTrip(answer=Answer(queue=queue), seconds=None) for queue in silent
    ]


def _answers(box: ReplyBox, missing: set[str], timeout: float) -> Iterator[RoundTrip]:
    message, began = ping_of(conf.service), time.monotonic()
    if not _send(box, message):
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


def _send(box: ReplyBox, message: Message) -> bool:
    """Send the ping; return whether any queue received it. Raise BrokerUnavailable if unknown."""
    place = ToExchange(
        exchange=exchange_of(EVENTS, PATTERN), routing_key=EVENTS.routing_key_of(PING, 1)
    )
    receipt = box.ask(place, message)
    if not isinstance(receipt, Confirmed | Unroutable):
        raise BrokerUnavailable(f"The broker did not accept the ping: {receipt.reason}.")
    return isinstance(receipt, Confirmed)
