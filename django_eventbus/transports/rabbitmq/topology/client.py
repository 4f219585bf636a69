"""Read and change the topology, one request at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
from pika import exceptions as amqp

from django_eventbus.conf import conf
from django_eventbus.exceptions import BrokerRefused, BrokerUnavailable
from django_eventbus.transports.rabbitmq.connection import BrokerConnection
from django_eventbus.transports.rabbitmq.management_api import ManagementApi, ManagementProblem
from django_eventbus.transports.rabbitmq.topology.resources import (
    Bind,
    Exchange,
    QueueResource,
    Resource,
)

#: The first version with delayed-retry-type. Messages that it delays are in no count of AMQP.
_DELAYS_RETURNED_MESSAGES = (4, 3)
_MANAGEMENT_NEEDED = (
    "{!r} may hold delayed messages, which only the management plugin shows: {}. "
    "Correct MANAGEMENT_URL, or delete the queue by hand when it is empty."
)
_REFUSED, _NOT_FOUND, _LOCKED, _DIFFERS = 403, 404, 405, 406
#: Sends a request on a channel, and passes the answer to a callback.
Send = Callable[[Any, Callable[[Any], None]], object]
_ANSWERS_NO = (_REFUSED, _NOT_FOUND, _LOCKED, _DIFFERS)


class ChannelClosed(Exception):
    """The broker closed the channel, with a code and a text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code


class Differs(BrokerRefused):
    """The resource exists on the broker with another type or other arguments."""

    def __init__(self, resource: Resource) -> None:
        super().__init__(
            f"The {resource} exists on the broker with another type or other arguments. "
            "Run `manage.py eventbus_topology --plan` to see the steps that change it."
        )


class NotPermitted(BrokerRefused):
    """The user has no right on the resource, so it is not known whether it exists."""


class TopologyClient:
    """Sends one request at a time. After a refusal, the next request opens a new channel."""

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection
        self._channel: Any = None

    def ask(self, send: Send) -> Any:
        """Return the broker's answer to the request of *send*, or raise ChannelClosed."""
        if self._channel is None or not self._channel.is_open:
            self._channel = self._connection.channel()
        channel = self._channel

        def question(answer: Callable[[Any], None], fail: Callable[[Exception], None]) -> None:
            channel.add_on_close_callback(lambda closed, reason: fail(closed_by(reason)))
            send(channel, answer)

        return self._connection.ask(question)

    def make(self, resource: Resource) -> None:
        """Declare *resource*. Raise BrokerRefused if the broker refuses it."""
        self._request(resource, lambda channel, answer: declare_one(channel, resource, answer))

    def _request(self, resource: Resource, send: Send) -> Any:
        try:
            return self.ask(send)
        except ChannelClosed as closed:
            # A binding has nothing that could differ: then the broker does not accept its key.
            if closed.code == _DIFFERS and not isinstance(resource, Bind):
                raise Differs(resource) from None
            if closed.code == _NOT_FOUND:
                # Another client deleted a resource that it needs a moment ago.
                words = f"The {resource} cannot be declared: {closed}"
                raise BrokerUnavailable(words, kind="setup") from None
            raise BrokerRefused(f"The broker refused the {resource}: {closed}") from None

    def unbind(self, bind: Bind) -> None:
        def send(channel: Any, answer: Callable[[Any], None]) -> None:
            channel.queue_unbind(bind.queue, bind.exchange, bind.key, callback=answer)

        self._request(bind, send)

    def delete(self, resource: Exchange | QueueResource) -> None:
        """Delete *resource* with its messages."""

        def send(channel: Any, answer: Callable[[Any], None]) -> None:
            if isinstance(resource, Exchange):
                channel.exchange_delete(resource.name, callback=answer)
            else:
                channel.queue_delete(resource.name, callback=answer)

        self._request(resource, send)

    def put(self, queue: str) -> None:
        """Put an empty, persistent message into *queue*."""
        persistent = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)

        def send(channel: Any, answer: Callable[[Any], None]) -> None:
            channel.basic_publish("", queue, b"", persistent)
            # The answer to this request proves that the broker has read the message.
            channel.queue_declare(queue, passive=True, callback=answer)

        self._request(QueueResource(name=queue), send)

    def differs(self, resource: Exchange | QueueResource) -> bool:
        """Whether *resource*, which exists, differs from its declaration."""
        try:
            self.ask(lambda channel, answer: declare_one(channel, resource, answer))
        except ChannelClosed as closed:
            # Without the permission to declare, this is not known.
            return closed.code == _DIFFERS
        return False

    def count(self, queue: str) -> int | None:
        """Return how many messages wait in *queue*, or None if it is missing."""
        frame = self.found(QueueResource(name=queue))
        return None if frame is None else int(frame.method.message_count)

    def counting_problem(self, queue: str) -> str:
        """Return why *queue* may hold messages that AMQP does not count, or ""."""
        if self._connection.server_version < _DELAYS_RETURNED_MESSAGES:
            return ""
        if not conf.management_url:
            return _MANAGEMENT_NEEDED.format(queue, "MANAGEMENT_URL is not set")
        try:
            managed = ManagementApi(conf.management_url, self._connection.address).queue(queue)
        except ManagementProblem as problem:
            return _MANAGEMENT_NEEDED.format(queue, problem)
        if managed is None:
            return _MANAGEMENT_NEEDED.format(queue, "it does not know the queue")
        if managed.delays_returned_messages or managed.delayed:
            return (
                f"{queue!r} may hold delayed messages, because delayed-retry-type is or was set on it. "
                "Exclude it from the policy, and run the command again when they were handled."
            )
        return ""

    def exists(self, resource: Exchange | QueueResource) -> bool:
        return self.found(resource) is not None

    def found(self, resource: Exchange | QueueResource) -> Any:
        """
        Return the answer to a passive declare of *resource*, or None if it is missing.

        Raise NotPermitted if the user has no right on it, which RabbitMQ asks for since 4.3.
        """
        try:
            return self.ask(lambda channel, answer: _declare_passively(channel, resource, answer))
        except ChannelClosed as closed:
            if closed.code == _NOT_FOUND:
                return None
            refused = NotPermitted if closed.code == _REFUSED else BrokerRefused
            raise refused(f"The broker refused the {resource}: {closed}") from None


def closed_by(reason: Any) -> Exception:
    code, text = getattr(reason, "reply_code", 0), getattr(reason, "reply_text", str(reason))
    if code in _ANSWERS_NO:
        return ChannelClosed(code, text)
    if isinstance(reason, amqp.AMQPConnectionError):
        return BrokerUnavailable("The connection was lost.")
    return BrokerUnavailable(f"The broker closed the channel: {text}", kind="setup")


def declare_one(channel: Any, resource: Resource, answer: Callable[[Any], None]) -> None:
    match resource:
        case Exchange(name=name, kind=kind):
            channel.exchange_declare(name, exchange_type=kind, durable=True, callback=answer)
        case QueueResource(name=name, arguments=arguments):
            channel.queue_declare(name, durable=True, arguments=arguments, callback=answer)
        case Bind(queue=queue, exchange=exchange, key=key):
            channel.queue_bind(queue, exchange, key, callback=answer)


def _declare_passively(
    channel: Any, resource: Exchange | QueueResource, answer: Callable[[Any], None]
) -> None:
    if isinstance(resource, Exchange):
        channel.exchange_declare(resource.name, passive=True, callback=answer)
    else:
        channel.queue_declare(resource.name, passive=True, callback=answer)
