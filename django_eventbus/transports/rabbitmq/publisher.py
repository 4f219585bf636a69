"""Publish persistent, mandatory messages with pipelined confirms. Each gets a receipt."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import takewhile
from typing import Any

from pika import exceptions as amqp

from django_eventbus.conf import conf
from django_eventbus.events.message import Message
from django_eventbus.exceptions import BrokerUnavailable
from django_eventbus.transports.contract import (
    Address,
    Confirmed,
    Outgoing,
    Receipt,
    Refused,
    Rejected,
    Unroutable,
)
from django_eventbus.transports.rabbitmq.batch import (
    Batch,
    PendingMessage,
    identity_of,
    pending_message,
)
from django_eventbus.transports.rabbitmq.connection import BrokerConnection
from django_eventbus.transports.rabbitmq.parameters import BrokerAddress
from django_eventbus.transports.rabbitmq.topology.resources import missed_tiers
from django_eventbus.transports.rabbitmq.topology.versions import CurrentVersions

_NOT_FOUND = 404
#: Messages that may wait for their confirm at the same time.
_CONFIRM_WINDOW = 1000
_CONFIRMED = Confirmed()
_NACKED = Refused(reason="a queue is full or cannot accept the message now")


class RabbitmqPublisher:
    """A channel in confirm mode on its own connection. May be used from any thread."""

    def __init__(
        self,
        address: BrokerAddress,
        restore: Callable[[set[str]], None],
        homes: Mapping[str, str],
    ) -> None:
        self.address = address
        #: Declares the tiers of queues again, in case one was deleted.
        self.restore = restore
        self._versions = CurrentVersions(homes)
        self._lock = threading.Lock()
        self._line: ConfirmingLine | None = None

    def open(self) -> None:
        self.usable_line()

    def publish(self, batch: Sequence[Outgoing]) -> Sequence[Receipt]:
        receipts = self._publish(batch)
        missed = missed_tiers(batch, receipts)
        if missed:
            self.restore(set(missed.values()))
            again = self._publish([batch[index] for index in missed])
            for index, receipt in zip(missed, again, strict=True):
                receipts[index] = receipt
        return receipts

    def _publish(self, batch: Sequence[Outgoing]) -> list[Receipt]:
        pending = self.prepare(batch)
        pending.send()
        return list(pending.receipts())

    def prepare(self, batch: Sequence[Outgoing]) -> RabbitmqBatch:
        return RabbitmqBatch(self, batch)

    def addressed(self, batch: Sequence[Outgoing]) -> list[tuple[Message, Address]]:
        """Return each message with its current address, because a queue may have a new version."""
        connection = self.usable_line().connection
        return [(each.message, self._versions.address(each.address, connection)) for each in batch]

    def receipts(self, line: ConfirmingLine, waiting: Batch) -> Sequence[Receipt]:
        """Wait for the confirms of the messages that were sent on *line*."""
        if not waiting.done.wait(conf.broker_options.confirm_timeout):
            # Not an orderly close, which the broker might not answer either.
            words = f"{self.address.words} did not confirm in time."
            waiting.fail(BrokerUnavailable(words, kind="io"))
            line.connection.drop()
        if waiting.error:
            raise waiting.error
        receipts = waiting.all_receipts()
        # A missing exchange does not count: every node would refuse it.
        is_refused = all(receipt is _NACKED for receipt in receipts)
        if is_refused and not line.connection.is_awaited_by_others:
            # A node that lost the connection to its queues refuses every message. Close the
            # connection, so that the next try may go to another node.
            line.connection.close()
        return receipts

    def usable_line(self) -> ConfirmingLine:
        """Return the open channel, or raise BrokerUnavailable."""
        line = self._open_line()
        line.connection.raise_if_blocked()
        return line

    def _open_line(self) -> ConfirmingLine:
        with self._lock:
            if self._line is None or not self._line.connection.is_open:
                connection = BrokerConnection(self.address, "publisher")
                connection.open()
                self._line = ConfirmingLine(connection)
            return self._line

    def close(self) -> None:
        with self._lock:
            if self._line:
                self._line.connection.close()


class RabbitmqBatch:
    """A batch of the publisher; receipts() raises its error."""

    def __init__(self, publisher: RabbitmqPublisher, batch: Sequence[Outgoing]) -> None:
        self._publisher = publisher
        self._waiting = Batch(len(batch))
        self._messages: list[PendingMessage] = []
        self._line: ConfirmingLine | None = None
        self._listening = ExitStack()
        self._error: BrokerUnavailable | None = None
        if batch:
            self._encode(batch)

    def _encode(self, batch: Sequence[Outgoing]) -> None:
        try:
            self._messages = [
                pending_message(self._waiting, index, message, address)
                for index, (message, address) in enumerate(self._publisher.addressed(batch))
            ]
        except BrokerUnavailable as error:
            self._error = error

    def send(self) -> None:
        if not self._messages:
            return
        try:
            self._line = self._publisher.usable_line()
            with ExitStack() as stack:
                stack.enter_context(self._line.connection.notifying(self._waiting.fail))
                self._line.send(self._messages)
                self._listening = stack.pop_all()
        except BrokerUnavailable as error:
            self._error = error

    def receipts(self) -> Sequence[Receipt]:
        if self._error:
            raise self._error
        if self._line is None:
            return []
        with self._listening:
            return self._publisher.receipts(self._line, self._waiting)


class ConfirmingLine:
    """
    A channel in confirm mode, which is opened again when the broker closes it.

    All methods except send() run on the I/O thread of the connection.
    """

    def __init__(self, connection: BrokerConnection) -> None:
        self.connection = connection
        connection.on_lost = self._on_lost
        connection.on_blocked = self._on_blocked
        self._channel: Any = None
        self._waiting: deque[PendingMessage] = deque()
        self._sent: dict[int, PendingMessage] = {}
        self._next_tag = 1
        #: The number of messages to send one by one, because one of them closed the channel.
        self._suspects = 0
        connection.call(self._open)

    def send(self, messages: Sequence[PendingMessage]) -> None:
        def enqueue() -> None:
            self._waiting.extend(messages)
            self._pump()

        self.connection.call(enqueue)

    def _open(self) -> None:
        self._channel, self._next_tag = None, 1
        self.connection.new_channel(self._on_channel_open)

    def _on_channel_open(self, channel: Any) -> None:
        channel.add_on_close_callback(self._on_channel_closed)
        channel.add_on_return_callback(self._on_returned)
        channel.confirm_delivery(self._on_confirmed, callback=lambda frame: self._on_ready(channel))

    def _on_ready(self, channel: Any) -> None:
        self._channel = channel
        self._pump()

    def _pump(self) -> None:
        window = 1 if self._suspects else _CONFIRM_WINDOW
        if not (self._waiting and self._can_send()):
            return
        with self.connection.buffered():
            # Check _can_send() only once: nothing that could close the channel runs in this loop.
            while self._waiting and len(self._sent) < window:
                self._send_one(self._waiting.popleft())

    def _can_send(self) -> bool:
        return bool(self._channel and self._channel.is_open and not self.connection.blocked)

    def _send_one(self, message: PendingMessage) -> None:
        if not message.is_awaited:
            return
        frame_max = self.connection.frame_max
        if problem := message.problem_with(frame_max):
            message.settle(Rejected(reason=problem))
            return
        self.connection.write(message.frames(self._channel.channel_number, frame_max))
        self._sent[self._next_tag] = message
        self._next_tag += 1

    def _on_confirmed(self, frame: Any) -> None:
        sys.audit("eventbus.rabbitmq.taken")
        method = frame.method
        is_ack = type(method).__name__ == "Ack"
        last = method.delivery_tag or self._next_tag
        # The tags are in order, so the search ends at the first higher one.
        tags = takewhile(last.__ge__, list(self._sent)) if method.multiple else (last,)
        for tag in tags:
            if message := self._sent.pop(tag, None):
                self._settle(message, is_ack)
        self._pump()

    def _settle(self, message: PendingMessage, is_ack: bool) -> None:
        self._suspects = max(self._suspects - 1, 0)
        if not is_ack:
            message.settle(_NACKED)
        else:
            message.settle(Unroutable() if message.is_returned else _CONFIRMED)

    def _on_returned(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        # The broker sends the return before the confirm.
        identity = identity_of(method.exchange, method.routing_key, properties)
        for message in self._sent.values():
            if not message.is_returned and message.identity == identity:
                message.is_returned = True
                return

    def _on_channel_closed(self, channel: Any, reason: Any) -> None:
        self._channel = None
        # pika also closes the channels of a lost connection, which no message has caused.
        if not isinstance(reason, amqp.ChannelClosedByBroker):
            return
        sent = list(self._sent.values())
        unsettled = [message for message in sent if message.is_awaited]
        self._sent.clear()
        # Only if it was the only message on the channel, including those that timed out.
        if len(sent) == len(unsettled) == 1:
            self._blame(sent[0], reason)
        else:
            # One of them closed the channel. Send them one by one until it happens again.
            self._suspects = len(unsettled)
            self._waiting.extendleft(reversed(unsettled))
        self._open()

    def _blame(self, message: PendingMessage, reason: amqp.ChannelClosedByBroker) -> None:
        self._suspects = 0
        text = f"{reason.reply_code} {reason.reply_text}"
        if reason.reply_code != _NOT_FOUND:
            message.settle(Rejected(reason=text))
            return
        # A missing exchange may be declared later. Refuse all waiting messages for it: each would
        # close the channel, and other messages would be sent twice.
        for each in (message, *self._waiting):
            if each.exchange == message.exchange:
                each.settle(Refused(reason=text))

    def _on_lost(self, error: Exception) -> None:
        self._fail_all(error)
        self._sent.clear()

    def _on_blocked(self, error: Exception) -> None:
        # Keep the messages in _sent: the broker confirms them after its alarm, when nobody waits
        # for them any more. Without them, the tags of later messages would be wrong.
        self._fail_all(error)
        self._suspects = 0

    def _fail_all(self, error: Exception) -> None:
        for message in [*self._sent.values(), *self._waiting]:
            message.batch.fail(error)
        self._waiting.clear()
