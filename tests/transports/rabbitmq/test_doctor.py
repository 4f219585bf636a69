"""eventbus_doctor finds what would lose messages, changes nothing, and says what it did not see."""

from __future__ import annotations

import json
from io import StringIO

import pika
import pytest
from django.core.management import CommandError, call_command

from django_eventbus import publish, transports
from django_eventbus.conf import conf
from django_eventbus.monitoring.doctor import diagnose
from django_eventbus.subscriptions.queue_specs import QueueSpec, queue_specs
from django_eventbus.transports.rabbitmq.doctor.facts import Facts, ResourceFacts
from django_eventbus.transports.rabbitmq.doctor.rules import problems
from django_eventbus.transports.rabbitmq.management_api import ManagedQueue, ManagementFacts
from django_eventbus.transports.rabbitmq.parameters import version_of
from django_eventbus.transports.rabbitmq.topology.resources import QueueResource
from tests.support.helpers import eventually
from tests.support.own_broker import ONE_WORKER
from tests.support.tables import table

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.rabbitmq,
    ONE_WORKER,
]


@pytest.fixture
def host(virtual_host):
    """A virtual host on which everything is as it should be, and the management plugin."""
    declare()
    virtual_host.configure(MANAGEMENT_URL=virtual_host.node.management_url)
    return virtual_host


def declare():
    transports.connect(conf.broker_url).declare(queue_specs())


def examined():
    return diagnose(transports.connect(conf.broker_url), queue_specs())


def errors(found=None):
    found = examined() if found is None else found
    return [each.text for each in found if each.severity == "error"]


def said(severity, found=None):
    found = examined() if found is None else found
    return " ".join(each.text for each in found if each.severity == severity)


def delete_queue(host, name):
    with host.amqp.channel() as channel:
        channel.queue_delete(name)


def test_a_healthy_bus_has_no_error_and_no_message_was_sent_to_find_out(host):
    found = examined()

    assert errors(found) == []
    assert all(each.remedy for each in found)
    assert "consumer timeout" in said("unchecked", found)
    for name in ("acts", "counts"):
        assert host.amqp.count(host.amqp.queue(name)) == 0
        assert host.amqp.count(f"{host.amqp.queue(name)}.dlq") == 0


def test_what_is_missing_is_found_and_not_declared(host):
    work, tier = host.amqp.queue("acts"), f"{host.amqp.queue('counts')}.retry.50ms"
    delete_queue(host, work)
    delete_queue(host, tier)
    with host.amqp.channel() as channel:
        channel.exchange_delete(f"{work}.dlq")

    for _ in range(2):
        assert [each for each in errors() if "is missing" in each] == [
            f"The exchange '{work}.dlq' is missing.",
            f"The queue '{work}' is missing.",
            f"The queue '{tier}' is missing.",
        ]


def test_a_dlq_that_is_not_bound_to_its_exchange_is_found_by_the_management_plugin(host):
    dlq = f"{host.amqp.queue('acts')}.dlq"
    with host.amqp.channel() as channel:
        channel.queue_unbind(dlq, dlq, "")

    (what,) = errors()

    assert f"no binding of '{dlq}' to '{dlq}'" in what
    host.configure(MANAGEMENT_URL=None)
    assert errors() == []
    assert "bindings (also those of the dead-letter exchanges)" in said("unchecked")


def test_a_queue_that_no_ping_reaches_is_a_warning_and_only_where_the_layout_is_ours(host):
    work, events = host.amqp.queue("acts"), f"{host.amqp.namespace}.events"
    with host.amqp.channel() as channel:
        channel.queue_unbind(work, events, "system.#")

    assert errors() == []
    assert f"no binding of '{work}' to '{events}' with 'system.#': eventbus_ping" in said("warning")
    host.configure(TOPOLOGY="check", NAMES={"routing_key": "{type}"})
    assert "eventbus_ping" not in said("warning")


def redeclare(host, **arguments):
    work = host.amqp.queue("acts")
    delete_queue(host, work)
    with host.amqp.channel() as channel:
        given = {"x-queue-type": "quorum", "x-dead-letter-exchange": f"{work}.dlq", **arguments}
        channel.queue_declare(work, durable=True, arguments=given)


AT_LEAST_ONCE = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}


def test_another_argument_is_found_with_the_broker_s_words(host):
    redeclare(host, **{"x-delivery-limit": 1000, "x-overflow": "drop-head"})

    assert any(
        "differs from its declaration" in each and "inequivalent arg" in each for each in errors()
    )


def test_a_delivery_limit_of_minus_one_is_an_error_before_rabbitmq_4(host):
    redeclare(host, **AT_LEAST_ONCE, **{"x-delivery-limit": -1})

    found = examined()

    if version_of(examined_version(host)) < (4,):
        assert "discards a message when it is returned for the first time" in " ".join(
            errors(found)
        )
    else:
        assert "on RabbitMQ 4 a limit of -1 is harmless" in " ".join(each.remedy for each in found)


def examined_version(host):
    with pika.BlockingConnection(pika.URLParameters(host.amqp.url)) as connection:
        return connection._impl.server_properties["version"]


HARMFUL = {
    "": {
        "overflow": "drop-head",
        "message_ttl": 90_000,
        "max_length": 5,
        "delivery_limit": 3,
        "expires": 9_000_000,
    },
    ".retry.50ms": {"message_ttl": 1},
    ".dlq": {"message_ttl": 90_000, "max_length": 5},
}


def test_every_policy_that_harms_is_found(host):
    work = host.amqp.queue("acts")
    for suffix, policy in HARMFUL.items():
        host.set_policy(f"^{work}{suffix}$", **policy)

    # The management plugin tells of policies a little later.
    eventually(lambda: len(errors()) == 4, timeout=40, interval=0.5, message=lambda: str(errors()))

    lost, worse = said("error"), said("warning")
    assert f"overflow = drop-head on {work}" in lost
    assert f"expires on {work}: the broker deletes the queue with its messages" in lost
    assert f"message-ttl = 90000 on {work}.dlq: the broker drops parked messages" in lost
    assert f"max-length = 5 on {work}.dlq" in lost
    assert f"message-ttl = 90000 on {work}: after this number of milliseconds" in worse
    assert "messages go to the DLQ unhandled" in worse
    assert f"max-length = 5 on {work}: when the queue is full, publishing stops" in worse
    assert f"delivery-limit = 3 on {work}: restarts of a consumer use it up" in worse
    assert f"message-ttl = 1 on {work}.retry.50ms: after this number of milliseconds" in worse
    assert "messages return too early" in worse


def test_permissions_that_are_missing_are_found(host):
    host.add_user("powerless")

    found = " ".join(errors())

    work = host.amqp.queue("acts")
    assert f"The user may not declare the queue '{work}'" in found
    assert f"The user may not publish to {host.amqp.namespace}.events" in found
    assert f"The user may not publish to {work}.retry" in found
    assert "The user may not publish to the default exchange" in found
    assert f"The user may not consume from {work}" in found
    host.configure(TOPOLOGY="check")
    assert "The user may not declare" not in " ".join(errors())
    assert "the user may not declare it" in said("unchecked")


def test_depths_and_consumers_are_told_and_nothing_is_taken(host):
    work = host.amqp.queue("acts")
    with host.amqp.channel() as channel:
        channel.confirm_delivery()
        channel.basic_publish("", work, b"{}")
        channel.basic_publish("", f"{work}.dlq", b"{}")

    found = examined()

    assert f"No process consumes {work}, which holds 1 message." in said("warning", found)
    assert f"{work}.dlq holds 1 message, and no consumers collect it." in said("warning", found)
    assert f"The permission to consume from {work} was not checked" in said("unchecked", found)
    with host.amqp.channel() as channel:
        method, *_ = channel.basic_get(work)
    assert not method.redelivered


def test_types_that_nobody_takes_are_told(host):
    publish("nobody.wants", {})
    publish("act.now", {})

    told = said("warning")

    assert "events of the type 'nobody.wants'" in told
    assert "act.now" not in told


def test_the_command_ends_with_1_if_something_loses_messages(host):
    out = StringIO()
    call_command("eventbus_doctor", stdout=out)
    assert "No problem that loses messages was found." in out.getvalue()
    delete_queue(host, f"{host.amqp.queue('acts')}.dlq")

    out = StringIO()
    with pytest.raises(CommandError, match=r"^1 problem loses messages"):
        call_command("eventbus_doctor", json=True, stdout=out)

    assert {each["severity"] for each in json.loads(out.getvalue())} >= {"error", "unchecked"}


@pytest.mark.parametrize("port", ["refused", "closed"])
def test_a_management_plugin_that_cannot_be_asked_is_told_without_the_secret(host, port):
    number = host.node.management_port if port == "refused" else 1
    host.configure(MANAGEMENT_URL=f"http://guest:hunter2@127.0.0.1:{number}")

    told = said("unchecked")

    assert "the management plugin could not be read" in told
    assert "hunter2" not in told
    assert errors() == []


def test_without_credentials_in_its_url_the_management_plugin_gets_the_broker_s(host):
    host.configure(MANAGEMENT_URL=f"http://127.0.0.1:{host.node.management_port}/")

    assert "MANAGEMENT_URL" not in said("unchecked")
    assert "could not be asked" not in said("unchecked")


def test_a_monitoring_user_that_may_do_nothing_is_enough_for_the_management_plugin(host):
    host.call("PUT", "users/monitor", password="secret", tags="monitoring")
    host.permit("monitor", "^$", "^$", "^$")
    port = host.node.management_port
    host.configure(MANAGEMENT_URL=f"http://monitor:secret@127.0.0.1:{port}")

    assert "could not be asked" not in said("unchecked")
    assert errors() == []


# Facts that no broker at hand would show.


def judged(**values):
    values = {"product": "RabbitMQ", "version": "3.10.8", "specs": [], **values}
    return list(problems(Facts(**values), []))


@table(
    ("values", "severity", "words"),
    [
        ({"version": "3.9.27"}, "error", "RabbitMQ 3.9.27 has no time to live"),
        ({"product": "LavinMQ"}, "warning", "reports the product 'LavinMQ'"),
        ({"product": ""}, "warning", "reports the product ''"),
        (
            {"management": ManagementFacts(skew=-90, queues={})},
            "warning",
            "clock differs from the local clock by -90 s",
        ),
    ],
)
def test_facts_lead_to_problems(values, severity, words):
    assert words in said(severity, judged(**values))


@table(
    ("policy", "is_short", "is_unchecked"),
    [
        ({}, False, True),
        ({"consumer-timeout": 60_000}, True, False),
        ({"consumer-timeout": 7_200_000}, False, False),
    ],
)
def test_a_consumer_timeout_is_seen_if_a_policy_sets_it(policy, is_short, is_unchecked):
    spec = QueueSpec(name="q", exchange="e", patterns=(), delays=())
    management = ManagementFacts(skew=0, queues={"q": ManagedQueue(policy=policy)})
    resources = [ResourceFacts(resource=QueueResource(name="q"), consumers=1)]

    found = judged(specs=[spec], resources=resources, management=management)

    assert ("consumer-timeout = 60000 on q" in said("warning", found)) is is_short
    assert ("consumer timeout" in said("unchecked", found)) is is_unchecked


@table(
    ("policy", "arguments", "is_hidden"),
    [
        ({"delayed-retry-type": "all"}, {}, True),
        ({}, {"x-delayed-retry-type": "failed"}, True),
        ({"delayed-retry-type": "disabled"}, {"x-delayed-retry-type": "failed"}, False),
        ({"delayed-retry-min": 1000}, {}, False),
    ],
)
def test_a_delayed_retry_of_the_broker_is_an_error_on_queues_and_dlqs(policy, arguments, is_hidden):
    spec = QueueSpec(name="q", exchange="e", patterns=(), delays=())
    queue = ManagedQueue(policy=policy, arguments=arguments)
    names = ("q", "q.dlq")
    management = ManagementFacts(skew=0, queues=dict.fromkeys(names, queue))
    resources = [ResourceFacts(resource=QueueResource(name=each), consumers=1) for each in names]

    found = said("error", judged(specs=[spec], resources=resources, management=management))

    for name in names:
        assert (f"delayed-retry-type on {name}: the broker does not count" in found) is is_hidden


def test_classic_queues_are_told_to_be_weaker(settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "QUEUE_TYPE": "classic"}

    assert "dead-letter at most once" in said("warning", judged())


@table("version", ["3.10.0", "3.13.7", "4.0.0-rc.1", "4.3.5"])
def test_supported_versions_are_fine(version):
    assert said("error", judged(version=version)) == ""


def test_a_spec_of_no_queue_is_no_error():
    spec = QueueSpec(name="q", exchange="e", patterns=(), delays=())

    assert said("error", judged(specs=[spec])) == ""
