"""The whole way of an event through RabbitMQ, with real processes."""

from __future__ import annotations

import pytest

from django_eventbus import publish
from django_eventbus.models import DeadLetter, OutboxEvent
from django_eventbus.redrive.letters import redrive
from tests.end_to_end.oracle import assert_exactly_once, become_exactly_once, publish_acts
from tests.shop.models import Effect
from tests.support.helpers import eventually

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgres,
    pytest.mark.rabbitmq,
]

KILLED = -9


@pytest.fixture
def worker(manage, amqp):
    def start(*, kill_at=""):
        options = {"env": amqp.environment, "kill_at": kill_at, "is_measured": not kill_at}
        return manage("consume_events", "--with-relay", **options)

    return start


def test_events_are_handled_retried_parked_and_re_driven_through_rabbitmq(worker):
    events = publish_acts()
    running = worker()
    become_exactly_once(events)
    letter = DeadLetter.objects.get(kind="failed")
    assert letter.attempts == 3
    letter.body = bytes(letter.body).replace(b'"fail"', b'"ok"')
    letter.save()

    redrive([letter.pk], by="tester", using="default")

    eventually(lambda: DeadLetter.objects.get(pk=letter.pk).state == "healed", timeout=20)
    effects = Effect.objects.filter(event_id=letter.message_id)
    assert sorted(effects.values_list("subscription", flat=True)) == ["shop.act", "shop.witness"]
    running.terminate()
    assert running.wait() == 0


@pytest.mark.parametrize(
    "point",
    [
        "relay.claimed",
        "rabbitmq.taken",
        "relay.confirmed",
        "relay.marked",
        "inbox.called",
        "inbox.committed",
        "inbox.recorded",
        "consumer.copied",
        "consumer.acked",
    ],
)
def test_a_kill_between_two_steps_is_harmless_on_rabbitmq_too(worker, point):
    events = publish_acts()

    assert worker(kill_at=f"eventbus.{point}").wait() == KILLED
    survivor = worker()
    become_exactly_once(events)
    survivor.terminate()

    assert survivor.wait() == 0
    assert_exactly_once(events)


def test_an_event_that_no_queue_wants_is_flagged_as_unroutable(manage, amqp):
    publish("nobody.wants", {})

    relay = manage.run("relay_events", "--once", env=amqp.environment, is_measured=True)

    assert relay.returncode == 0, relay.output
    row = OutboxEvent.objects.get()
    assert (row.state, row.error) == ("unroutable", "no queue is bound to receive it")


def test_a_refused_login_ends_the_command_with_one_sentence_without_the_secret(manage, amqp):
    environment = amqp.with_settings(BROKER_USER="nobody", BROKER_PASSWORD="hunter2")

    worker = manage.run("consume_events", env=environment, is_measured=True)

    assert worker.returncode == 1
    assert "refused the login" in worker.output.splitlines()[-1]
    assert "hunter2" not in worker.output
    assert "Traceback" not in worker.output


def test_an_unreachable_broker_is_waited_for_and_sigterm_ends_the_wait(manage, amqp):
    environment = amqp.with_settings(BROKER_URL="amqp://127.0.0.1:1")

    worker = manage("consume_events", env=environment, is_measured=True)
    worker.wait_for("Outage: The broker at amqp://127.0.0.1:1// does not answer.")
    worker.terminate()

    assert worker.wait(20) == 0
