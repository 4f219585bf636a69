"""Commands on a real broker: an exchange of their own, one queue, and everything that events have."""

from __future__ import annotations

import pika
import pytest

from django_eventbus import Command, handle_command, publish, send_command, subscribe, transports
from django_eventbus.conf import conf
from django_eventbus.models import DeadLetter, OutboxEvent
from django_eventbus.monitoring.doctor import diagnose
from django_eventbus.outbox import relay
from django_eventbus.redrive.letters import redrive
from django_eventbus.subscriptions.queue_specs import queue_specs
from tests.support.helpers import eventually
from tests.support.own_broker import ONE_WORKER
from tests.transports.rabbitmq.shop import Shop

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.rabbitmq,
    pytest.mark.usefixtures("no_subscriptions"),
]


class Reprocess(Command, type="file.reprocess", version=2):
    file_id: int


def record(event):
    """Keep the event for the test, and fail if told so."""
    record.got.append(event)
    if event.meta.attempt < record.failures and not event.meta.round:
        raise ValueError


@pytest.fixture(autouse=True)
def got():
    record.got, record.failures = [], 0
    return record.got


def worked_until(shop, condition):
    def worked():
        shop.work()
        return condition()

    eventually(worked, timeout=30)


def test_a_command_takes_its_own_exchange_and_is_retried_parked_and_redriven(amqp, settings, got):
    handle_command(Reprocess, queue="acts", name="reprocess", retry=["50ms"])(record)
    subscribe("#", queue="acts", name="events")(record)
    shop = Shop(amqp, settings)
    record.failures = 9

    event_id = send_command(Reprocess(file_id=7), key=7, correlation_id="chain")
    worked_until(shop, lambda: DeadLetter.objects.exists())
    letter = DeadLetter.objects.get()
    redrive([letter.pk], by="me", using="default")
    worked_until(shop, lambda: DeadLetter.objects.get().state == DeadLetter.State.HEALED)

    assert letter.headers["x-original-exchange"] == f"{amqp.namespace}.commands"
    assert letter.subscription == "reprocess"
    seen = [(each.meta.subscription, each.meta.round, each.meta.attempt) for each in got]
    assert seen == [("reprocess", 0, 1), ("reprocess", 0, 2), ("reprocess", 1, 1)]
    assert {each.meta.id for each in got} == {str(event_id)}
    assert {(each.meta.key, each.meta.correlation_id) for each in got} == {("7", "chain")}


def test_events_by_pattern_and_commands_share_a_queue_and_are_not_mixed_up(amqp, settings, got):
    handle_command("file.#", queue="acts", name="commands")(record)
    subscribe("#", queue="acts", name="events")(record)
    shop = Shop(amqp, settings)

    command = send_command("file.reprocess")
    event = publish("file.reprocess", {})
    worked_until(shop, lambda: len(got) == 2)

    seen = {each.meta.subscription: each.meta.id for each in got}
    assert seen == {"commands": str(command), "events": str(event)}


def test_versioned_keys_reach_typed_and_wildcard_handlers(amqp, settings, got):
    names = {"routing_key": "{type}.v{version}", "command_routing_key": "commands.{type}.{version}"}
    settings.EVENTBUS = {**settings.EVENTBUS, "NAMES": names}
    handle_command(Reprocess, queue="acts", name="typed")(record)
    subscribe("file.*", queue="acts", name="star")(record)
    subscribe("order.placed", queue="acts", name="plain")(record)
    shop = Shop(amqp, settings)

    send_command(Reprocess(file_id=1))
    publish("file.uploaded", {})
    publish("order.placed", {})
    worked_until(shop, lambda: len(got) == 3)

    keys = set(OutboxEvent.objects.values_list("routing_key", flat=True))
    assert keys == {"commands.file.reprocess.2", "file.uploaded.v1", "order.placed.v1"}
    assert sorted(each.meta.subscription for each in got) == ["plain", "star", "typed"]


def test_a_stranger_s_command_without_a_type_arrives_by_its_key(amqp, settings, got):
    handle_command("file.reprocess.*", queue="acts", name="commands")(record)
    shop = Shop(amqp, settings)

    exchange = f"{amqp.namespace}.commands"
    shop.put(to="commands.file.reprocess.v1", exchange=exchange, type=None)
    worked_until(shop, lambda: got)

    assert (got[0].type, got[0].payload) == ("commands.file.reprocess.v1", {"do": "ok"})


def test_a_command_is_held_until_somebody_has_made_the_exchange_of_commands(
    amqp, settings, got, monkeypatch
):
    subscribe("file.uploaded", queue="acts", name="events")(record)
    shop = Shop(amqp, settings)
    monkeypatch.setattr(relay, "HOLD_WAIT", (0.05, 0.05))
    send_command("file.reprocess")
    publish("file.uploaded", {})
    worked_until(shop, lambda: got)
    held = OutboxEvent.objects.get(type="file.reprocess")

    handle_command("file.reprocess", queue="acts", name="commands")(record)
    shop.transport.declare(queue_specs())
    worked_until(shop, lambda: len(got) == 2)

    assert (held.state, "no exchange" in held.error) == (OutboxEvent.State.SCHEDULED, True)
    assert [each.meta.subscription for each in got] == ["events", "commands"]


@ONE_WORKER
def test_the_doctor_complains_of_a_second_queue_by_the_bindings_of_the_broker(virtual_host):
    handle_command("file.*", queue="acts", name="commands")(record)
    transports.connect(conf.broker_url).declare(queue_specs())
    virtual_host.configure(MANAGEMENT_URL=virtual_host.node.management_url)
    send_command("file.reprocess")
    assert errors() == []

    with virtual_host.amqp.channel() as channel:
        bind(channel, conf.commands_exchange, "commands.file.reprocess")

    found = " ".join(errors())
    assert "Commands with the routing key 'commands.file.*' go to 2 queues" in found
    assert "Commands 'file.reprocess' go to 2 queues" in found


def bind(channel: pika.adapters.blocking_connection.BlockingChannel, exchange: str, key: str):
    channel.queue_declare("another", exclusive=False, durable=True)
    channel.queue_bind("another", exchange, key)


def errors():
    found = diagnose(transports.connect(conf.broker_url), queue_specs())
    return [each.text for each in found if each.severity == "error"]
