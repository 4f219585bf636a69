"""Collect facts about the broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pika import spec as amqp

from django_eventbus.conf import conf
from django_eventbus.exceptions import BrokerRefused
from django_eventbus.subscriptions.queue_specs import QueueSpec
from django_eventbus.transports.contract import PublishedType
from django_eventbus.transports.rabbitmq.connection import BrokerConnection
from django_eventbus.transports.rabbitmq.management_api import (
    ManagementApi,
    ManagementFacts,
    ManagementProblem,
)
from django_eventbus.transports.rabbitmq.topology.client import (
    ChannelClosed,
    TopologyClient,
    closed_by,
    declare_one,
)
from django_eventbus.transports.rabbitmq.topology.resources import (
    Bind,
    Exchange,
    QueueResource,
    Resource,
    dead_letter_queue,
    resources,
    retry_exchange,
)

_DIFFERS = 406


@dataclass(slots=True, kw_only=True)
class ResourceFacts:
    """A queue or an exchange as AMQP shows it."""

    resource: Exchange | QueueResource
    is_missing: bool = False
    #: The broker's message if it differs from what we would declare.
    difference: str = ""
    #: The broker's message if the user may not declare or read it.
    refusal: str = ""
    messages: int = 0
    consumers: int = 0

    @property
    def kind(self) -> str:
        return "queue" if isinstance(self.resource, QueueResource) else "exchange"


@dataclass(slots=True, kw_only=True)
class Facts:
    """Everything that is known about the broker."""

    product: str
    version: str
    specs: Sequence[QueueSpec]
    resources: list[ResourceFacts] = field(default_factory=list)
    bindings: list[Bind] = field(default_factory=list)
    #: The broker's message for each exchange and queue without permission to write or read.
    unwritable: dict[str, str] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    #: Queues whose read permission cannot be checked without removing a message.
    untried: list[str] = field(default_factory=list)
    management: ManagementFacts | None = None
    management_problem: str = ""

    def queue(self, name: str) -> ResourceFacts | None:
        """Return the facts of the queue *name*; an exchange may have the same name."""
        queues = (each for each in self.resources if isinstance(each.resource, QueueResource))
        return next((each for each in queues if each.resource.name == name), None)


def collect(
    connection: BrokerConnection, specs: Sequence[QueueSpec], published: Sequence[PublishedType]
) -> Facts:
    """Return the facts about everything that *specs* need."""
    properties = connection.server_properties
    facts = Facts(
        product=str(properties.get("product", "")),
        version=str(properties.get("version", "")),
        specs=specs,
    )
    needed: dict[str, Resource] = {str(each): each for spec in specs for each in resources(spec)}
    client = TopologyClient(connection)
    for resource in needed.values():
        if isinstance(resource, Bind):
            facts.bindings.append(resource)
        else:
            facts.resources.append(_resource_facts(client, resource))
    _try_to_write(connection, facts)
    _try_to_read(connection, facts)
    _add_management_facts(connection, facts, {each.exchange for each in published})
    return facts


def _resource_facts(client: TopologyClient, resource: Exchange | QueueResource) -> ResourceFacts:
    facts = ResourceFacts(resource=resource)
    try:
        found = client.found(resource)
    except BrokerRefused as refused:
        facts.refusal = str(refused)
        return facts
    if found is None:
        facts.is_missing = True
        return facts
    facts.messages = getattr(found.method, "message_count", 0)
    facts.consumers = getattr(found.method, "consumer_count", 0)
    try:
        # Only for a resource that exists: this would create any other.
        client.ask(lambda channel, answer: declare_one(channel, resource, answer))
    except ChannelClosed as closed:
        if closed.code == _DIFFERS:
            facts.difference = str(closed)
        else:
            facts.refusal = str(closed)
    return facts


def _try_to_write(connection: BrokerConnection, facts: Facts) -> None:
    found = (each for each in facts.resources if not each.is_missing)
    present = {each.resource.name for each in found if isinstance(each.resource, Exchange)}
    for exchange, key in _written_to(facts.specs):
        if exchange and exchange not in present:
            continue
        if message := _write_refusal(connection, exchange, key):
            facts.unwritable[exchange or "the default exchange"] = message


def _written_to(specs: Sequence[QueueSpec]) -> Iterator[tuple[str, str]]:
    exchanges = dict.fromkeys(
        name for spec in specs for name in (spec.exchange, retry_exchange(spec.name))
    )
    yield from ((exchange, "eventbus.doctor") for exchange in exchanges if exchange)
    yield from (("", spec.name) for spec in specs[:1])


def _write_refusal(connection: BrokerConnection, exchange: str, key: str) -> str:
    channel = connection.channel()

    def question(answer: Callable[[Any], None], fail: Callable[[Exception], None]) -> None:
        channel.add_on_close_callback(lambda closed, reason: fail(closed_by(reason)))
        # The broker checks permissions at once, but delivers the messages of a transaction only
        # after a commit, which never comes.
        channel.tx_select()
        channel.basic_publish(exchange, key, b"")
        channel.tx_rollback(callback=answer)

    try:
        connection.ask(question)
    except ChannelClosed as closed:
        return str(closed)
    return ""


def _try_to_read(connection: BrokerConnection, facts: Facts) -> None:
    for name in (
        name for spec in facts.specs for name in (spec.name, dead_letter_queue(spec.name))
    ):
        queue = facts.queue(name)
        if queue is None or queue.is_missing:
            continue
        if queue.messages:
            facts.untried.append(name)
        elif message := _read_refusal(connection, name):
            facts.unreadable[name] = message


def _read_refusal(connection: BrokerConnection, queue: str) -> str:
    channel = connection.channel()

    def question(answer: Callable[[Any], None], fail: Callable[[Exception], None]) -> None:
        def give_back(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            # A message arrived since the queue was seen empty.
            channel.basic_nack(method.delivery_tag, requeue=True)
            answer(None)

        channel.add_on_close_callback(lambda closed, reason: fail(closed_by(reason)))
        channel.add_callback(answer, [amqp.Basic.GetEmpty])
        channel.basic_get(queue, give_back)

    try:
        connection.ask(question)
    except ChannelClosed as closed:
        return str(closed)
    return ""


def _add_management_facts(connection: BrokerConnection, facts: Facts, exchanges: set[str]) -> None:
    if not conf.management_url:
        facts.management_problem = "MANAGEMENT_URL is not set"
        return
    queues = [
        each.resource.name for each in facts.resources if isinstance(each.resource, QueueResource)
    ]
    bound = {exchange for spec in facts.specs for exchange, _ in spec.bindings}
    try:
        api = ManagementApi(conf.management_url, connection.address)
        facts.management = api.facts(queues, sorted(exchanges | bound))
    except ManagementProblem as problem:
        facts.management_problem = f"the management plugin could not be read: {problem}"
