"""Send pings through an exchange, and receive the answers by direct reply-to, without a queue."""

from __future__ import annotations

import queue as queues
from collections.abc import Callable
from typing import Any

from django_eventbus.events.message import Message
from django_eventbus.exceptions import BrokerRefused
from django_eventbus.transports.contract import Confirmed, Receipt, Refused, ToExchange, Unroutable
from django_eventbus.transports.rabbitmq.connection import BrokerConnection
from django_eventbus.transports.rabbitmq.decoding import message_of
from django_eventbus.transports.rabbitmq.encoding import properties_of
from django_eventbus.transports.rabbitmq.parameters import BrokerAddress
from django_eventbus.transports.rabbitmq.topology.resources import DIRECT_REPLY

Answer = Callable[[Any], None]
Fail = Callable[[Exception], None]


class RabbitmqReplyBox:
    """A channel for questions and answers. Its private methods run on the I/O thread."""

    def __init__(self, address: BrokerAddress) -> None:
        self._arrived: queues.Queue[Message] = queues.Queue()
        self._is_returned = False
        self._connection = BrokerConnection(address, "ping")
        self._connection.open()
        try:
            self._channel = self._connection.channel()
            self._connection.ask(self._listen)
        except BaseException:
            self._connection.close()
            raise

    def ask(self, address: ToExchange, message: Message) -> Receipt:
        receipt: Receipt = self._connection.ask(
            lambda answer, fail: self._publish(address, message, answer, fail)
        )
        return receipt

    def receive(self, timeout: float) -> Message | None:
        try:
            return self._arrived.get(timeout=timeout)
        except queues.Empty:
            return None

    def close(self) -> None:
        self._connection.close()

    def _listen(self, answer: Answer, fail: Fail) -> None:
        self._fail_when_closed(fail)
        self._channel.add_on_return_callback(self._on_returned)
        self._channel.basic_consume(DIRECT_REPLY, self._on_answer, auto_ack=True, callback=answer)

    def _publish(self, address: ToExchange, message: Message, answer: Answer, fail: Fail) -> None:
        def on_confirmed(frame: Any) -> None:
            if type(frame.method).__name__ != "Ack":
                answer(Refused(reason="a queue is full or cannot accept the message now"))
            else:
                answer(Unroutable() if self._is_returned else Confirmed())

        def publish(frame: Any) -> None:
            properties = properties_of(message)
            # On the channel that consumes: the broker replaces this with an address of the channel.
            properties.reply_to = DIRECT_REPLY
            self._channel.basic_publish(
                address.exchange, address.routing_key, message.body, properties, mandatory=True
            )

        self._fail_when_closed(fail)
        self._channel.confirm_delivery(on_confirmed, callback=publish)

    def _fail_when_closed(self, fail: Fail) -> None:
        self._channel.add_on_close_callback(
            lambda channel, reason: fail(BrokerRefused(f"The broker refused the ping: {reason}"))
        )

    def _on_returned(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        # The broker sends the return before the confirm.
        self._is_returned = True

    def _on_answer(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self._arrived.put(message_of(method, properties, body))
