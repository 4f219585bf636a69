"""Ask the broker for one thing at a time: declare, look, bind, delete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika

from django_eventbus.exceptions import BrokerRefused, BrokerUnavailable
from django_eventbus.transports.rabbitmq.connection import BrokerConnection
from django_eventbus.transports.rabbitmq.topology.resources import (
    Bind,
    Exchange,
    QueueResource,
    Resource,
)

_REFUSED, _NOT_FOUND, _LOCKED, _DIFFERS = 403, 404, 405, 406
#: Sends something on a channel, and has the answer given to a callback.
Send = Callable[[Any, Callable[[Any], None]], object]
_ANSWERS_NO = (_REFUSED, _NOT_FOUND, _LOCKED, _DIFFERS)


class ChannelClosed(Exception):
    """The broker closed the channel, with a code and its words."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code


class Differs(BrokerRefused):
    """It exists with another type or other arguments than we would declare it with."""

    def __init__(self, resource: Resource) -> None:
        super().__init__(
            f"The {resource} exists on the broker with another type or other arguments. "
            "Run `manage.py eventbus_topology --plan` to see the steps that change it."
        )


class TopologyClient:
    """Asks the broker one thing at a time; a no costs the channel, so a new one is opened."""

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection
        self._channel: Any = None

    def ask(self, send: Send) -> Any:
        """Return the broker's answer to what *send* sends, or raise ChannelClosed."""
        if self._channel is None or not self._channel.is_open:
            self._channel = self._connection.channel()
        channel = self._channel

        def question(answer: Callable[[Any], None], fail: Callable[[Exception], None]) -> None:
            channel.add_on_close_callback(lambda closed, reason: fail(closed_by(reason)))
            send(channel, answer)

        return self._connection.ask(question)

    def make(self, resource: Resource) -> None:
        """Declare *resource*. Raise BrokerRefused if the broker will not have it."""
        self._insist(resource, lambda channel, answer: declare_one(channel, resource, answer))

    def _insist(self, resource: Resource, send: Send) -> Any:
        try:
            return self.ask(send)
        except ChannelClosed as closed:
            if closed.code == _DIFFERS:
                raise Differs(resource) from None
            if closed.code == _NOT_FOUND:
                # It was there a moment ago: somebody is deleting while we declare.
                words = f"The {resource} cannot be declared: {closed}"
                raise BrokerUnavailable(words, kind="setup") from None
            raise BrokerRefused(f"The broker refused the {resource}: {closed}") from None

    def unbind(self, bind: Bind) -> None:
        def send(channel: Any, answer: Callable[[Any], None]) -> None:
            channel.queue_unbind(bind.queue, bind.exchange, bind.key, callback=answer)

        self._insist(bind, send)

    def delete(self, resource: Exchange | QueueResource) -> None:
        """Delete *resource*, and what is in it."""

        def send(channel: Any, answer: Callable[[Any], None]) -> None:
            if isinstance(resource, Exchange):
                channel.exchange_delete(resource.name, callback=answer)
            else:
                channel.queue_delete(resource.name, callback=answer)

        self._insist(resource, send)

    def put(self, queue: str) -> None:
        """Put an empty, persistent message into *queue*."""
        persistent = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)

        def send(channel: Any, answer: Callable[[Any], None]) -> None:
            channel.basic_publish("", queue, b"", persistent)
            # The answer to this comes when the broker has read both.
            channel.queue_declare(queue, passive=True, callback=answer)

        self._insist(QueueResource(name=queue), send)

    def differs(self, resource: Exchange | QueueResource) -> bool:
        """Whether *resource*, which exists, is other than we would declare it."""
        try:
            self.ask(lambda channel, answer: declare_one(channel, resource, answer))
        except ChannelClosed as closed:
            # Without the right to declare it cannot be told.
            return closed.code == _DIFFERS
        return False

    def count(self, queue: str) -> int | None:
        """Return how many messages wait in *queue*, or None if it is missing."""
        frame = self.found(QueueResource(name=queue))
        return None if frame is None else int(frame.method.message_count)

    def exists(self, resource: Exchange | QueueResource) -> bool:
        return self.found(resource) is not None

    def found(self, resource: Exchange | QueueResource) -> Any:
        """Return what a passive declare says of *resource*, or None if it is missing."""
        try:
            return self.ask(lambda channel, answer: _look(channel, resource, answer))
        except ChannelClosed as closed:
            if closed.code == _NOT_FOUND:
                return None
            raise BrokerRefused(f"The broker refused the {resource}: {closed}") from None


def closed_by(reason: Any) -> Exception:
    code, text = getattr(reason, "reply_code", 0), getattr(reason, "reply_text", str(reason))
    if code in _ANSWERS_NO:
        return ChannelClosed(code, text)
    return BrokerUnavailable("The connection was lost.", kind="setup")


def declare_one(channel: Any, resource: Resource, answer: Callable[[Any], None]) -> None:
    match resource:
        case Exchange(name=name, kind=kind):
            channel.exchange_declare(name, exchange_type=kind, durable=True, callback=answer)
        case QueueResource(name=name, arguments=arguments):
            channel.queue_declare(name, durable=True, arguments=arguments, callback=answer)
        case Bind(queue=queue, exchange=exchange, key=key):
            channel.queue_bind(queue, exchange, key, callback=answer)


def _look(channel: Any, resource: Exchange | QueueResource, answer: Callable[[Any], None]) -> None:
    if isinstance(resource, Exchange):
        channel.exchange_declare(resource.name, passive=True, callback=answer)
    else:
        channel.queue_declare(resource.name, passive=True, callback=answer)
