"""What the demo leaves on a broker that others may use too: nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

from django_eventbus import transports
from django_eventbus.conf import conf
from django_eventbus.exceptions import BrokerRefused, Unavailable
from django_eventbus.workers import queue_specs


@contextmanager
def left_as_it_was() -> Iterator[None]:
    """Delete, at the end, what the shop has declared in the namespace of this demo."""
    try:
        yield
    finally:
        if transports.scheme_of(conf.broker_url).startswith("amqp"):
            # A broker that is away, or refused us, has nothing of ours, or cannot be told.
            with suppress(Unavailable, BrokerRefused):
                delete_everything()


def delete_everything() -> None:
    # Here, because a demo without RabbitMQ must not need its client.
    from django_eventbus.transports.rabbitmq.connection import BrokerConnection
    from django_eventbus.transports.rabbitmq.parameters import address_of
    from django_eventbus.transports.rabbitmq.topology import Exchange, Queue, resources

    connection = BrokerConnection(address_of(conf.broker_url), "demo")
    connection.open()
    try:
        channel = connection.channel()
        delete = {Exchange: channel.exchange_delete, Queue: channel.queue_delete}
        for resource in [each for spec in queue_specs() for each in resources(spec)]:
            if verb := delete.get(type(resource)):
                connection.ask(partial(_ask, verb, resource.name))
    finally:
        connection.close()


def _ask(verb, name, answer, fail) -> None:
    verb(name, callback=answer)
