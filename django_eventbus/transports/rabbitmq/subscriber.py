"""Receive on one I/O thread, and send each ack on the channel of its delivery."""

from __future__ import annotations

import logging
import queue as queues
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from pika import frame, spec

from django_eventbus.events.message import Message
from django_eventbus.exceptions import BrokerUnavailable
from django_eventbus.transports.rabbitmq.connection import BrokerConnection
from django_eventbus.transports.rabbitmq.decoding import message_of
from django_eventbus.transports.rabbitmq.parameters import BrokerAddress, process_name

#: The first version that does not count a basic.nack as a delivery towards the delivery limit.
_COUNTS_NO_NACKS = (4, 3)

logger = logging.getLogger("django_eventbus.transports.rabbitmq")

#: A higher count does not make the wait before a return any longer.
_MOST_DELIVERIES = 300


class RabbitmqDelivery:
    """A delivery of one channel. Its tag is valid only on that channel."""

    def __init__(self, feed: Feed, queue: str, method: Any, message: Message) -> None:
        self.message = message
        self.queue = queue
        self.is_redelivered = bool(method.redelivered)
        self._feed = feed
        self._tag: int = method.delivery_tag
        self._deliveries = _earlier_deliveries(message) if self.is_redelivered else 0

    def ack(self) -> None:
        self._feed.settle(self._tag, is_ack=True)

    def release(self, after: float = 0) -> None:
        # The wait grows, because each return counts towards the delivery limit of the queue. Above
        # it, the broker would dead-letter a message that another worker may still be handling.
        patience = 1 + self._deliveries // 10
        self._feed.settle(self._tag, is_ack=False, after=after * patience)


def _earlier_deliveries(message: Message) -> int:
    # RabbitMQ 4.3 counts returned messages in the first header only. A first delivery may have
    # either from its publisher.
    count = message.number("x-acquired-count") or message.number("x-delivery-count")
    return min(count, _MOST_DELIVERIES)


class RabbitmqSubscriber:
    """Consumes its queues; after a lost connection, the next receive() connects again."""

    def __init__(
        self,
        address: BrokerAddress,
        prefetch: int,
        prepare: Callable[[BrokerConnection], Mapping[str, str]],
        *,
        is_ordered: bool = False,
    ) -> None:
        self.address = address
        self.prefetch = prefetch
        #: Returns the queues to consume by their names on the broker, with their usual names.
        self.prepare = prepare
        self.is_ordered = is_ordered
        self._lock = threading.Lock()
        self._feed: Feed | None = None
        self._is_closed = False

    def receive(self, timeout: float) -> RabbitmqDelivery | None:
        return self._open_feed().next(timeout)

    def is_drained(self) -> bool:
        try:
            feed = self._open_feed()
            return feed.is_settled() and not any(map(feed.count, feed.names)) and feed.is_settled()
        except BrokerUnavailable:
            if self._is_closed:
                return False
            raise

    def _open_feed(self) -> Feed:
        with self._lock:
            if self._is_closed:
                raise BrokerUnavailable("The subscriber was closed.")
            if self._feed is None or self._feed.is_over:
                if self._feed:
                    self._feed.connection.close()
                self._feed = self._connected()
            return self._feed

    def _connected(self) -> Feed:
        connection = BrokerConnection(self.address, "consumer", is_ordered=self.is_ordered)
        connection.open()
        try:
            return Feed(connection, self.prepare(connection), self.prefetch)
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        self._is_closed = True
        with self._lock:
            if self._feed:
                self._feed.close(is_ordered=self.is_ordered)


class Feed:
    """The deliveries of one channel. When the channel ends, a new feed replaces this one."""

    def __init__(
        self, connection: BrokerConnection, names: Mapping[str, str], prefetch: int
    ) -> None:
        self.connection = connection
        self.names = names
        self.is_over = False
        # Not a SimpleQueue: with several readers, its get(timeout=…) can wait forever.
        self._arrived: queues.Queue[RabbitmqDelivery | None] = queues.Queue()
        self._unsettled: set[int] = set()
        self._lock = threading.Lock()
        self._to_settle: list[tuple[int, bool, float]] = []
        self._tags: list[str] = []
        connection.on_lost = lambda error: self._end()
        self._channel = connection.channel()
        connection.ask(lambda answer, fail: self._start(prefetch, answer, fail))

    def _start(
        self,
        prefetch: int,
        answer: Callable[[Any], None],
        fail: Callable[[Exception], None],
    ) -> None:
        def on_closed(channel: Any, reason: Any) -> None:
            self._end()
            fail(self.connection.channel_lost(reason))
            # Otherwise a caller that waits for an answer on the channel would wait until a timeout.
            self.connection.drop()

        self._channel.add_on_close_callback(on_closed)
        self._channel.add_on_cancel_callback(self._on_cancelled)
        self._channel.basic_qos(prefetch_count=prefetch)
        last = list(self.names)[-1]
        for name in self.names:
            self._consume(name, answer if name == last else None)

    def _consume(self, name: str, on_consuming: Callable[[Any], None] | None) -> None:
        def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            self._unsettled.add(method.delivery_tag)
            message = message_of(method, properties, body)
            self._arrived.put(RabbitmqDelivery(self, self.names[name], method, message))

        tag = f"{process_name(name)} {id(self)}"
        self._tags.append(tag)
        self._channel.basic_consume(name, on_message, consumer_tag=tag, callback=on_consuming)

    def _on_cancelled(self, frame: Any) -> None:
        # The queue was deleted, or the consumer timed out. No more messages would arrive.
        logger.warning("The broker cancelled the consumer; subscribing again.")
        self._end()

    def _end(self) -> None:
        self.is_over = True
        self._arrived.put(None)

    def next(self, timeout: float) -> RabbitmqDelivery | None:
        try:
            delivery = self._arrived.get(timeout=max(timeout, 0.001))
        except queues.Empty:
            return None
        if delivery is None or self.is_over:
            self._arrived.put(None)
            raise BrokerUnavailable("The connection to the broker was lost.")
        return delivery

    def settle(self, tag: int, *, is_ack: bool, after: float = 0) -> None:
        if self.is_over:
            # The broker has returned the message, and on a new channel the tag is another message.
            return
        # Append and check under one lock. Otherwise the I/O thread could empty the list in between,
        # and nothing would call it for this delivery and all later ones.
        with self._lock:
            self._to_settle.append((tag, is_ack, after))
            is_first = len(self._to_settle) == 1
        if is_first:
            try:
                self.connection.call(self._settle_all)
            except BrokerUnavailable:
                logger.debug("The connection was lost before a delivery was settled.")

    def _settle_all(self) -> None:
        with self._lock:
            to_settle, self._to_settle = self._to_settle, []
        self._ack({tag for tag, is_ack, _ in to_settle if is_ack})
        for tag, is_ack, after in to_settle:
            if after:
                self.connection.later(after, partial(self._return, tag))
            elif not is_ack:
                self._return(tag)

    def _settle_before(
        self, answer: Callable[[None], None], fail: Callable[[Exception], None]
    ) -> None:
        self._settle_all()
        answer(None)

    @property
    def _is_open(self) -> bool:
        return not self.is_over and bool(self._channel.is_open)

    def _ack(self, tags: set[int]) -> None:
        """Ack *tags*; those below the oldest unsettled tag share one frame."""
        if not self._is_open:
            return
        self._unsettled -= tags
        oldest = min(self._unsettled, default=None)
        together = {tag for tag in tags if oldest is None or tag < oldest}
        if together:
            self._channel.basic_ack(max(together), multiple=True)
        for tag in tags - together:
            self._channel.basic_ack(tag)

    def _return(self, tag: int) -> None:
        if self._is_open:
            self._unsettled.discard(tag)
            self._channel.basic_nack(tag, requeue=True)

    def is_settled(self) -> bool:
        return not self._unsettled and not self._to_settle

    def count(self, name: str) -> int:
        """Return how many messages wait in the queue *name*."""

        def question(answer: Callable[[int], None], fail: Callable[[Exception], None]) -> None:
            self._channel.queue_declare(
                name, passive=True, callback=lambda frame: answer(frame.method.message_count)
            )

        return self.connection.ask(question)

    def close(self, *, is_ordered: bool) -> None:
        # Send the waiting acks first, or the broker would deliver these messages again.
        with suppress(BrokerUnavailable):
            self.connection.ask(self._settle_before)
            if self.connection.server_version >= _COUNTS_NO_NACKS and not is_ordered:
                self.connection.ask(self._return_all)
        # Closing the channel returns all unsettled messages.
        self.is_over = True
        self.connection.close()

    def _return_all(self, answer: Callable[[Any], None], fail: Callable[[Exception], None]) -> None:
        """Return what was received without counting it, as closing the channel would."""
        if not self._is_open:
            answer(None)
            return
        # Cancel first, or the messages would come back to this channel. Not on an ordered queue,
        # where the next consumer would receive the messages behind them. Not with pika, which
        # rejects what arrives after it has cancelled, and rejected messages are counted.
        for tag in self._tags:
            cancel = frame.Method(self._channel.channel_number, spec.Basic.Cancel(tag, nowait=True))
            self.connection.write(cancel.marshal())

        def on_last_delivery(_: Any) -> None:
            self._channel.basic_nack(0, multiple=True, requeue=True)
            answer(None)

        # The broker answers after the cancels, so what it delivered before them has arrived.
        self._channel.basic_qos(prefetch_count=1, callback=on_last_delivery)
