"""TOPOLOGY: declare, check, assume."""

from __future__ import annotations

from dataclasses import replace

import pika.exceptions
import pytest

from django_eventbus import transports
from django_eventbus.conf import conf
from django_eventbus.exceptions import BrokerRefused, BrokerUnavailable
from django_eventbus.subscriptions.queue_specs import QueueSpec, queue_specs
from django_eventbus.transports.rabbitmq.parameters import version_of
from django_eventbus.transports.rabbitmq.topology.resources import Bind
from tests.support.probes import rabbitmq_answers

pytestmark = pytest.mark.rabbitmq


def configure(settings, **changes):
    settings.EVENTBUS = {**settings.EVENTBUS, **changes}


def declare(specs: list[QueueSpec] | None = None):
    transports.connect(conf.broker_url).declare(specs or queue_specs())


def exists(amqp, queue):
    with amqp.channel() as channel:
        try:
            channel.queue_declare(queue, passive=True)
        except pika.exceptions.ChannelClosedByBroker:
            return False
        return True


def test_check_passes_where_everything_is_declared(amqp, settings):
    declare()
    declare()
    configure(settings, TOPOLOGY="check")

    declare()


@pytest.mark.parametrize("missing", ["", ".retry.50ms", ".dlq"])
def test_check_names_the_queue_that_is_missing_and_declares_nothing(amqp, settings, missing):
    declare()
    name = amqp.queue("acts") + missing
    with amqp.channel() as channel:
        channel.queue_delete(name)
    configure(settings, TOPOLOGY="check")

    with pytest.raises(BrokerRefused, match=f"The queue '{name}' is missing on the broker"):
        declare()

    assert not exists(amqp, name)


def test_check_names_the_exchange_that_is_missing(amqp, settings):
    configure(settings, TOPOLOGY="check")

    with pytest.raises(BrokerRefused, match=f"exchange '{amqp.namespace}.events' is missing"):
        declare()

    assert not exists(amqp, amqp.queue("acts"))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"QUEUE_TYPE": "classic"}, "queue '.*.dlq'"),
        ({"EXCHANGE_TYPES": {"events": "fanout"}}, "exchange '.*.events'"),
    ],
)
def test_check_names_what_differs_under_our_own_names(amqp, settings, changes, named):
    declare()
    configure(settings, TOPOLOGY="check", **changes)

    with pytest.raises(BrokerRefused, match=f"The {named} exists on the broker with another type"):
        declare()


def test_check_leaves_the_arguments_to_whoever_chose_the_names(amqp, settings):
    declare()
    configure(settings, TOPOLOGY="check", QUEUE_TYPE="classic", NAMES={"dead_letter_key": "x"})

    declare()


def test_what_is_deleted_while_it_is_declared_is_waited_for_and_not_refused(amqp):
    declare()
    missing = Bind(queue=amqp.queue("acts"), exchange=f"{amqp.namespace}.gone", key="a")

    with transports.connect(conf.broker_url).topology_client() as client:
        with pytest.raises(BrokerUnavailable, match="cannot be declared: 404"):
            client.make(missing)
        client.make(replace(missing, exchange=conf.events_exchange))


def test_a_binding_that_the_broker_refuses_is_reported_in_its_words(amqp):
    declare()
    bind = Bind(queue=amqp.queue("acts"), exchange=conf.events_exchange, key="#.a.#.b.#")

    with transports.connect(conf.broker_url).topology_client() as client:
        if version_of(rabbitmq_answers(amqp.url)) < (4, 3, 5):
            client.make(bind)
            return
        with pytest.raises(BrokerRefused) as refused:
            client.make(bind)

    assert str(refused.value).startswith(f"The broker refused the {bind}: 406 ")


def test_assume_does_not_even_look(amqp, settings):
    configure(settings, TOPOLOGY="assume")

    declare()

    assert not exists(amqp, amqp.queue("acts"))
