"""eventbus_topology: plan, apply, diagram, definitions, and the move to a new version."""

from __future__ import annotations

import json
import threading
from io import StringIO

import pika
import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from django_eventbus import transports
from django_eventbus.conf import conf
from django_eventbus.events.message import Message, uuid7
from django_eventbus.exceptions import BrokerRefused
from django_eventbus.subscriptions.queue_specs import queue_specs
from django_eventbus.transports.contract import Confirmed, Outgoing, ToExchange, ToQueue, ToTier
from django_eventbus.transports.rabbitmq.parameters import version_of
from django_eventbus.transports.rabbitmq.topology import versions
from tests.support.helpers import eventually
from tests.support.own_broker import ONE_WORKER
from tests.support.probes import rabbitmq_answers

pytestmark = pytest.mark.rabbitmq


def configure(settings, **changes):
    settings.EVENTBUS = {**settings.EVENTBUS, **changes}


def topology(*options):
    stdout = StringIO()
    call_command("eventbus_topology", *options, stdout=stdout)
    return stdout.getvalue()


def plan():
    return json.loads(topology("--json"))


def apply():
    return json.loads(topology("--apply", "--yes", "--json"))


def states(found):
    return {each["name"]: each["state"] for each in found["resources"]}


@pytest.fixture
def transport(amqp):
    transport = transports.connect(conf.broker_url)
    transport.declare(queue_specs())
    return transport


@pytest.fixture
def publisher(transport):
    publisher = transport.publisher()
    yield publisher
    publisher.close()


def send(publisher, address, **changes):
    message = Message(**{"id": str(uuid7()), "type": "act.now", "body": b"{}", **changes})
    assert publisher.publish([Outgoing(address=address, message=message)]) == [Confirmed()]
    return message.id


def received(transport, number, queue="acts"):
    """Return where each of *number* messages was received; settle them."""
    subscriber = transport.subscriber([conf.queue(queue)], prefetch=10)
    found = {}
    try:
        for _ in range(number):
            delivery = subscriber.receive(10)
            assert delivery, f"only {len(found)} came"
            found[delivery.message.id] = delivery.queue
            delivery.ack()
        eventually(subscriber.is_drained)
    finally:
        subscriber.close()
    return found


def test_a_plan_on_an_empty_broker_says_what_is_missing_and_makes_nothing(amqp):
    found = plan()

    assert set(states(found).values()) == {"missing"}
    assert f"declare the queue '{amqp.queue('acts')}'" in found["steps"]
    assert plan() == found


def test_apply_makes_what_is_missing_and_a_second_time_changes_nothing(amqp):
    text = topology("--apply", "--yes")
    again = topology("--apply", "--yes")

    assert f"missing  queue '{amqp.queue('acts')}'" in text
    assert text.endswith("Done.\n")
    assert f"exists   queue '{amqp.queue('acts')}' (0 messages, 0 consumers)" in again
    assert again.endswith("There is nothing to do.\n")
    transport = transports.connect(conf.broker_url)
    publisher = transport.publisher()
    send(publisher, ToExchange(exchange=conf.events_exchange, routing_key="act.now"))
    publisher.close()
    assert set(received(transport, 1).values()) == {amqp.queue("acts")}


def test_apply_asks_first_and_a_no_changes_nothing(amqp, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda question: "n")
    with pytest.raises(CommandError, match=r"Nothing was changed\."):
        topology("--apply")
    assert set(states(plan()).values()) == {"missing"}

    monkeypatch.setattr("builtins.input", lambda question: "y")
    topology("--apply")
    assert set(states(plan()).values()) == {"exists"}


def test_apply_without_anyone_to_ask_says_so(amqp, monkeypatch):
    monkeypatch.setattr("sys.stdin", StringIO(""))

    with pytest.raises(CommandError, match="use --yes"):
        topology("--apply")


def apply_twice_at_once():
    threads = [threading.Thread(target=topology, args=("--apply", "--yes")) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)


def test_two_applies_at_once_do_no_harm(amqp, settings):
    apply_twice_at_once()
    assert set(states(plan()).values()) == {"exists"}

    configure(settings, QUEUE_TYPE="classic")
    apply_twice_at_once()

    moved = plan()
    assert {each["version"] for each in moved["queues"]} == {2}
    assert set(states(moved).values()) == {"exists"}
    assert moved["steps"] == []


@pytest.mark.parametrize("mode", ["check", "assume"])
def test_what_is_not_ours_is_planned_but_never_applied(amqp, settings, mode):
    configure(settings, TOPOLOGY=mode)

    with pytest.raises(CommandError, match="only 'declare' allows"):
        topology("--apply", "--yes")

    assert set(states(plan()).values()) == {"missing"}


def test_an_exchange_of_another_type_is_left_to_its_owner(amqp, settings, transport):
    configure(settings, EXCHANGE_TYPES={"events": "fanout"})

    found = apply()

    assert states(found)[conf.events_exchange] == "differs"
    assert found["steps"] == []
    assert "Other services use it too" in found["remains"][0]


@pytest.fixture
def moved(amqp, settings, monkeypatch, transport):
    """Have an old version of each queue, just left for a new one."""
    monkeypatch.setattr(versions, "LOOK_AGAIN_AFTER", 0.3)
    configure(settings, QUEUE_TYPE="classic")
    apply()
    return transport


def test_a_changed_argument_is_refused_at_the_start_with_the_remedy(amqp, settings, transport):
    configure(settings, QUEUE_TYPE="classic")

    with pytest.raises(BrokerRefused, match="eventbus_topology --plan"):
        transport.declare(queue_specs())

    assert states(plan())[amqp.queue("acts")] == "differs"


def test_a_changed_argument_becomes_a_new_version_and_both_are_consumed(
    amqp, settings, monkeypatch, transport, publisher
):
    monkeypatch.setattr(versions, "LOOK_AGAIN_AFTER", 0.3)
    old, new = amqp.queue("acts"), f"{amqp.queue('acts')}.v2"
    event = ToExchange(exchange=conf.events_exchange, routing_key="act.now")
    sent = {send(publisher, event), send(publisher, ToTier(queue=old, delay=0.1))}
    eventually(lambda: amqp.count(old) == 2)

    configure(settings, QUEUE_TYPE="classic")
    applied = apply()

    assert f"declare the queue '{new}'" in applied["steps"]
    assert "is still consumed" in applied["remains"][0]
    transport.declare(queue_specs())
    assert states(plan())[new] == "exists"
    sent.add(send(publisher, event))
    assert (amqp.count(old), amqp.count(new)) == (2, 1)
    sent.add(send(publisher, ToTier(queue=old, delay=0.05)))
    assert set(received(transport, 4).items()) == {(each, old) for each in sent}


def test_a_relay_that_runs_on_addresses_the_new_version_soon(amqp, publisher, moved):
    old, new = amqp.queue("acts"), f"{amqp.queue('acts')}.v2"

    def arrives_in_the_new_one():
        send(publisher, ToQueue(queue=old))
        return amqp.count(new)

    assert eventually(arrives_in_the_new_one)


def wait_is_over():
    return all(each["wait"] == "over" for each in plan()["old"])


def test_an_old_version_is_not_deleted_before_it_is_empty_and_let_go(amqp, moved):
    old = amqp.queue("acts")
    with amqp.channel() as channel:
        channel.basic_publish("", old, b"{}")
        eventually(wait_is_over, timeout=20)
        assert any("holds 1 message, and 0 in its tiers" in each for each in apply()["remains"])
        channel.queue_purge(old)
        channel.basic_consume(old, lambda *delivery: None)
        assert any("has 1 consumer. Restart" in each for each in apply()["remains"])

    assert amqp.count(old) == 0


@pytest.fixture
def host(virtual_host, monkeypatch):
    """Have an old version of each queue where the management plugin counts its messages."""
    monkeypatch.setattr(versions, "LOOK_AGAIN_AFTER", 0.3)
    virtual_host.configure(MANAGEMENT_URL=virtual_host.node.management_url)
    transports.connect(conf.broker_url).declare(queue_specs())
    virtual_host.configure(QUEUE_TYPE="classic")
    apply()
    return virtual_host


@ONE_WORKER
def test_an_old_version_is_deleted_when_it_is_safe_and_its_dlq_when_that_is_empty(host):
    old = host.amqp.queue("acts")
    with host.amqp.channel() as channel:
        channel.basic_publish("", f"{old}.dlq", b"parked")
    eventually(wait_is_over, timeout=20)

    assert f"delete the queue '{old}'" in apply()["steps"]
    held = f"'{old}.dlq' holds 1 message. Collect or re-drive its messages; a later --apply deletes it."
    assert plan()["remains"] == [held]
    with host.amqp.channel() as channel:
        channel.queue_purge(f"{old}.dlq")
    apply()

    final = plan()
    assert (final["old"], final["steps"], final["remains"]) == ([], [], [])
    assert {each["version"] for each in final["queues"]} == {2}
    transport = transports.connect(conf.broker_url)
    publisher = transport.publisher()
    send(publisher, ToExchange(exchange=conf.events_exchange, routing_key="act.now"))
    publisher.close()
    assert set(received(transport, 1).values()) == {old}


def delays_returned_messages(host):
    return version_of(rabbitmq_answers(host.node.server.url)) >= (4, 3)


@ONE_WORKER
def test_nothing_is_deleted_on_a_count_that_cannot_be_trusted(host):
    old = host.amqp.queue("acts")
    host.configure(MANAGEMENT_URL=None)
    eventually(wait_is_over, timeout=20)

    found = apply()

    if delays_returned_messages(host):
        assert not [each for each in found["steps"] if each.startswith("delete the queue")]
        assert any(f"'{old}' may hold delayed messages" in each for each in found["remains"])
        assert host.amqp.count(old) == 0
    else:
        assert f"delete the queue '{old}'" in found["steps"]


@ONE_WORKER
@pytest.mark.parametrize("suffix", ["", ".dlq"])
def test_a_queue_whose_messages_a_policy_hides_is_not_deleted(host, suffix):
    if not delays_returned_messages(host):
        pytest.skip("Policies delay returned messages since RabbitMQ 4.3.")
    old = host.amqp.queue("acts") + suffix
    delays = {"delayed_retry_min": 60_000, "delayed_retry_max": 60_000}
    host.set_policy(f"^{old}$", delayed_retry_type="all", **delays)
    with host.amqp.channel() as channel:
        channel.basic_publish("", old, b"returned")

        def is_hidden():
            method, _, _ = channel.basic_get(old)
            if method:
                channel.basic_nack(method.delivery_tag, requeue=True)
            return method is None and host.amqp.count(old) == 0

        eventually(is_hidden, timeout=20)
        eventually(wait_is_over, timeout=20)
        # The management plugin knows of a policy a little later.
        eventually(lambda: is_said_to_hide(old), timeout=20)

        apply()

        assert host.amqp.count(old) == 0


def is_said_to_hide(queue):
    """Tell whether the plan keeps *queue* because of its policy."""
    found = f"'{queue}' may hold delayed messages, because delayed-retry-type"
    return any(each.startswith(found) for each in plan()["remains"])


def consumed(transport, queue):
    subscriber = transport.subscriber([queue], prefetch=1)
    subscriber.receive(0)
    names = set(subscriber._feed.names)
    subscriber.close()
    return names


def test_an_old_version_is_kept_and_consumed_while_somebody_may_write_to_it(
    amqp, settings, transport
):
    old, new = amqp.queue("acts"), f"{amqp.queue('acts')}.v2"
    configure(settings, QUEUE_TYPE="classic")
    apply()

    again = apply()

    assert again["steps"] == []
    assert any("no process can write to it any more" in each for each in again["remains"])
    assert consumed(transport, old) == {old, new}


def test_a_worker_lets_go_of_an_old_version_that_is_empty_after_the_wait(amqp, moved):
    old, new = amqp.queue("acts"), f"{amqp.queue('acts')}.v2"

    eventually(lambda: consumed(moved, old) == {new}, timeout=20)
    with amqp.channel() as channel:
        channel.basic_publish("", old, b"late")

    assert eventually(lambda: consumed(moved, old) == {old, new})


def test_the_dlqs_of_both_versions_are_known_by_one_name(amqp, publisher, moved):
    dlq = moved.dead_letter_queue(amqp.queue("acts"))
    with amqp.channel() as channel:
        channel.basic_publish("", dlq, b"{}", pika.BasicProperties(message_id="old"))
    eventually(wait_is_over, timeout=20)

    def parked_in_the_new_one():
        send(publisher, ToQueue(queue=dlq), id="new")
        return amqp.count(f"{amqp.queue('acts')}.v2.dlq")

    eventually(parked_in_the_new_one)
    subscriber = moved.subscriber([amqp.queue("acts"), dlq], prefetch=10)
    found = [subscriber.receive(10) for _ in range(2)]
    subscriber.close()

    assert {each.queue for each in found} == {dlq}
    new = f"{amqp.queue('acts')}.v2"
    assert set(subscriber._feed.names) == {new, dlq, f"{new}.dlq"}


def test_the_doctor_looks_at_the_current_version(amqp, moved):
    found = moved.diagnose(queue_specs(), [])

    assert [each.text for each in found if each.severity == "error"] == []


def test_a_worker_of_the_old_release_goes_on_after_the_move(amqp, settings, moved, publisher):
    configure(settings, QUEUE_TYPE="quorum")
    send(publisher, ToExchange(exchange=conf.events_exchange, routing_key="act.now"))

    assert set(received(moved, 1).values()) == {amqp.queue("acts")}


def test_going_back_is_one_more_version(amqp, settings, moved):
    configure(settings, QUEUE_TYPE="quorum")
    apply()

    assert {each["version"] for each in plan()["queues"]} == {3}
    assert len(plan()["old"]) == 4


def test_names_without_room_for_a_version_leave_the_change_to_a_person(amqp, settings, transport):
    configure(settings, QUEUE_TYPE="classic", NAMES={"dead_letter_queue": "{namespace}.dlq"})

    found = apply()

    with amqp.channel() as channel:
        channel.queue_delete(f"{amqp.namespace}.dlq")
    assert any("NAMES does not allow a second version" in each for each in found["remains"])
    assert not any(".v2" in each for each in found["steps"])
    assert {each["version"] for each in plan()["queues"]} == {1}


def test_the_diagram_shows_every_queue_and_where_it_gives_up(amqp):
    drawn = topology("--diagram")

    assert drawn.startswith("flowchart LR\n")
    for name in (amqp.queue("acts"), f"{amqp.queue('acts')}.retry.50ms"):
        assert f'[("{name}")]' in drawn
    assert '-->|"act.*"|' in drawn
    assert '-->|"system.#"|' in drawn
    assert '-.->|"after 50 ms"|' in drawn
    assert '-.->|"dead-lettered"|' in drawn


@ONE_WORKER
def test_the_definitions_are_what_a_broker_imports(own_broker):
    own_broker.call("POST", "definitions", **json.loads(topology("--definitions")))

    found = plan()
    assert set(states(found).values()) == {"exists"}
    assert (found["steps"], found["remains"]) == ([], [])
    bound = [
        (each["routing_key"], each["destination"])
        for each in json.loads(own_broker.call("GET", "bindings"))
    ]
    assert ("act.*", conf.queue("acts")) in bound
    assert ("system.#", conf.queue("acts")) in bound


@pytest.mark.django_db
def test_the_database_transport_has_nothing_to_declare_on_a_broker(settings):
    configure(settings, BROKER_URL="database://")

    assert "there is no broker to declare queues on" in topology()
    assert "The queues are bound" in topology("--apply", "--yes")
    with pytest.raises(CommandError, match="no broker that could import"):
        topology("--definitions")
