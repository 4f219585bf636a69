"""Declare the topology, or check that somebody else did: TOPOLOGY says which."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django_eventbus.conf import conf
from django_eventbus.exceptions import BrokerRefused, BrokerUnavailable
from django_eventbus.transports.contract import QueueSpec
from django_eventbus.transports.rabbitmq.connection import BrokerConnection
from django_eventbus.transports.rabbitmq.topology import (
    Bind,
    Exchange,
    Queue,
    Resource,
    resources,
)

_REFUSED, _NOT_FOUND, _LOCKED, _DIFFERS = 403, 404, 405, 406
_ANSWERS_NO = (_REFUSED, _NOT_FOUND, _LOCKED, _DIFFERS)


class ChannelClosed(Exception):
    """The broker closed the channel, with a code and its words."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code


class Inquiry:
    """Asks the broker one thing at a time; a no costs the channel, so a new one is opened."""

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection
        self._channel: Any = None

    def ask(self, send: Callable[[Any, Callable[[Any], None]], object]) -> Any:
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
        try:
            self.ask(lambda channel, answer: declare_one(channel, resource, answer))
        except ChannelClosed as closed:
            raise BrokerRefused(f"The broker refused the {resource}: {closed}") from None

    def differs(self, resource: Exchange | Queue) -> bool:
        """Whether *resource*, which exists, is other than we would declare it."""
        try:
            self.ask(lambda channel, answer: declare_one(channel, resource, answer))
        except ChannelClosed as closed:
            # Without the right to declare it cannot be told.
            return closed.code == _DIFFERS
        return False

    def exists(self, resource: Exchange | Queue) -> bool:
        return self.found(resource) is not None

    def found(self, resource: Exchange | Queue) -> Any:
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
        case Queue(name=name, arguments=arguments):
            channel.queue_declare(name, durable=True, arguments=arguments, callback=answer)
        case Bind(queue=queue, exchange=exchange, key=key):
            channel.queue_bind(queue, exchange, key, callback=answer)


def _look(channel: Any, resource: Exchange | Queue, answer: Callable[[Any], None]) -> None:
    if isinstance(resource, Exchange):
        channel.exchange_declare(resource.name, passive=True, callback=answer)
    else:
        channel.queue_declare(resource.name, passive=True, callback=answer)


def establish(connection: BrokerConnection, specs: Sequence[QueueSpec]) -> None:
    """Do at the start what TOPOLOGY says. Raise BrokerRefused if the broker is not as needed."""
    if conf.topology == "check":
        check(connection, specs)
    else:
        restore(connection, specs)


def restore(connection: BrokerConnection, specs: Sequence[QueueSpec]) -> None:
    """Declare what is ours, once more: something may have been deleted under our feet."""
    # What others laid out was seen to be there at the start, and is theirs to bring back.
    if conf.topology == "declare":
        declare(connection, specs)


def declare(connection: BrokerConnection, specs: Sequence[QueueSpec]) -> None:
    """Make everything exist that *specs* need. Raise BrokerRefused if the broker will not."""
    inquiry = Inquiry(connection)
    for resource in [each for spec in specs for each in resources(spec)]:
        inquiry.make(resource)


def check(connection: BrokerConnection, specs: Sequence[QueueSpec]) -> None:
    """Raise BrokerRefused with what is missing or differs; declare nothing."""
    inquiry = Inquiry(connection)
    needed = {str(each): each for spec in specs for each in resources(spec)}
    for resource in needed.values():
        # AMQP cannot ask for a binding.
        if not isinstance(resource, Bind):
            _refuse_fault(inquiry, resource)


def _refuse_fault(inquiry: Inquiry, resource: Exchange | Queue) -> None:
    if not inquiry.exists(resource):
        raise BrokerRefused(
            f"The {resource} is missing on the broker, and TOPOLOGY is 'check': have it declared, "
            "or correct NAMES."
        )
    # Under names of their own, arguments are the business of whoever chose the names.
    if not conf.given.get("NAMES") and inquiry.differs(resource):
        raise BrokerRefused(
            f"The {resource} has another type or other arguments on the broker than this version "
            "declares: see `manage.py eventbus_topology --plan`."
        )
