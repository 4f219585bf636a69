"""Events and commands with a retry and a DLQ per queue, and a re-drive for administrators."""

from __future__ import annotations

import json
import logging
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from django_eventbus import handle_command, publish, send_command
from django_eventbus.models import Attempt, InboxRecord, OutboxEvent
from django_eventbus.subscriptions.queue_specs import queue_specs
from tests.shop.models import Effect
from tests.support.buses import LAYOUTS
from tests.support.helpers import eventually
from tests.support.interludes import death
from tests.support.own_broker import OTHER_WORKER

LAYOUT = LAYOUTS["domain events"]
QUEUE, DLQ = "q.validator", "q.validator.dlq"
#: N of the document: attempts, the first one included.
ATTEMPTS = 3


def fail(event):
    """Leave an effect, and fail, unless somebody has re-driven it."""
    Effect.objects.create(event_id=event.meta.id, subscription="handler")
    if not event.meta.round:
        raise ConnectionError("the other side is away")


def leave_effect(event):
    Effect.objects.create(event_id=event.meta.id, subscription=event.meta.subscription)


def run(command, *arguments, **options):
    out = StringIO()
    call_command(command, *arguments, stdout=out, **options)
    return out.getvalue()


@pytest.fixture
def parked(on_rabbitmq):
    """Park *number* messages in the DLQ of the queue, and leave them there."""

    def park(number):
        on_rabbitmq.configure(PARK_TO="broker", COLLECT_DLQ=False)
        on_rabbitmq.subscribe(fail)
        last = {"x-retry-count": ATTEMPTS - 1}
        ids = [on_rabbitmq.put("files.uploaded.v1", headers=last) for _ in range(number)]
        on_rabbitmq.settle(number)
        # Whoever still listens would take what a re-drive sends back.
        on_rabbitmq.restart()
        eventually(lambda: on_rabbitmq.depth(DLQ) == number)
        return ids

    return park


def test_commands_and_events_have_an_exchange_each(joined):
    joined.subscribe(leave_effect)
    for number, pattern in enumerate(("upload.#", "file.reprocess.*")):
        handle_command(pattern, queue="upload.commands", name=f"{number}")(leave_effect)
    joined.transport.declare(queue_specs())

    commands = [str(send_command(each)) for each in ("upload.start", "file.reprocess.v1")]
    event = str(publish("files.uploaded.v1", {}))
    joined.settle(3)

    bound = {
        ("domain.commands", "commands.upload.#"),
        ("domain.commands", "commands.file.reprocess.*"),
    }
    assert bound <= {each for spec in queue_specs() for each in spec.bindings}
    assert sorted(joined.effects) == sorted([*commands, event])
    assert joined.seen_by("q.audit") == [(event, 0)]


@pytest.mark.parametrize("command", ["upload.start", "file.reprocess.v1"])
def test_commands_reach_the_one_queue_that_is_bound_for_them(joined, command):
    for pattern in ("upload.#", "file.reprocess.*"):
        handle_command(pattern, queue="upload.commands", name=pattern)(leave_effect)
    joined.transport.declare(queue_specs())

    sent = str(send_command(command, {}))
    joined.settle()

    assert joined.effects == [sent]
    assert OutboxEvent.objects.get().exchange == "domain.commands"
    assert OutboxEvent.objects.get().routing_key == f"commands.{command}"
    assert joined.seen_by("q.audit") == []


def test_retry_of_one_consumer_does_not_republish_to_the_main_exchange(joined):
    joined.subscribe(fail)

    event = str(publish("files.uploaded.v1", {}))
    joined.settle()

    assert joined.attempts == ATTEMPTS
    assert joined.seen_by("q.audit") == [(event, 0)]


@pytest.mark.rabbitmq
@OTHER_WORKER
def test_the_message_waits_in_the_retry_queue_and_returns_only_to_its_own_queue(on_rabbitmq):
    deaths = []

    def handler(event):
        deaths.extend(event.meta.headers.get("x-death", []))
        fail(event)

    on_rabbitmq.subscribe(handler)
    on_rabbitmq.put("files.uploaded.v1")

    on_rabbitmq.settle()

    assert {(each["queue"], each["reason"]) for each in deaths} == {
        ("q.validator.retry", "expired")
    }
    assert {each["exchange"] for each in deaths} == {"retry.q.validator"}
    assert {key for each in deaths for key in each["routing-keys"]} == {"retry"}


@pytest.mark.rabbitmq
@OTHER_WORKER
def test_after_n_attempts_it_is_parked_with_the_key_parking_and_acked(on_rabbitmq, parked):
    (event,) = parked(1)

    ((properties, _),) = on_rabbitmq.taken(DLQ)
    assert properties.message_id == event
    assert properties.headers["x-final-retry-count"] == ATTEMPTS - 1
    assert on_rabbitmq.depth(QUEUE) == on_rabbitmq.depth("q.validator.retry") == 0


def test_the_counter_is_not_derived_from_x_death(joined):
    """The broker's header is trimmed, merged and lost; ours counts attempts and nothing else."""
    joined.subscribe(fail)
    death = {"queue": QUEUE, "reason": "rejected", "count": 99, "exchange": "", "routing-keys": []}

    joined.put("files.uploaded.v1", headers={"x-death": [death]})
    joined.settle()

    assert list(Attempt.objects.order_by("pk").values_list("attempt", flat=True)) == [1, 2, 3]


@pytest.mark.rabbitmq
@OTHER_WORKER
def test_get_messages_with_a_limit_is_a_peek(on_rabbitmq, parked):
    ids = parked(3)

    lines = run("eventbus_dlq", DLQ, "--limit", "2", "--json").splitlines()

    assert len(lines) == 2
    assert {json.loads(line)["id"] for line in lines} <= set(ids)
    eventually(lambda: on_rabbitmq.depth(DLQ) == 3)


@pytest.mark.rabbitmq
@OTHER_WORKER
def test_re_drive_takes_a_limit_and_adds_audit_headers(on_rabbitmq, parked):
    ids = parked(3)

    options = ("--limit", "2", "--by", "ada", "--json", "--yes")
    done = json.loads(run("redrive_events", "--from-broker", QUEUE, *options))

    assert len(done["moved"]) == 2
    assert set(done["moved"]) <= set(ids)
    eventually(lambda: on_rabbitmq.depth(DLQ) == 1)
    eventually(lambda: on_rabbitmq.depth(QUEUE) == 2)
    for properties, _ in on_rabbitmq.taken(QUEUE):
        headers = properties.headers
        assert (headers["x-redriven-by"], headers["x-redriven-count"]) == ("ada", 1)
        assert headers["x-redriven-at"]
        assert headers["x-retry-count"] == 0
        assert headers["x-original-queue"] == QUEUE


@pytest.mark.rabbitmq
@OTHER_WORKER
@pytest.mark.parametrize("command", ["eventbus_dlq", "redrive_events"])
def test_only_known_queues_are_accepted(on_rabbitmq, command):
    on_rabbitmq.subscribe(fail)
    arguments = ["q.audit.dlq"] if command == "eventbus_dlq" else ["--from-broker", "q.audit"]

    with pytest.raises(CommandError, match="is not a queue of this project"):
        run(command, *arguments)


@pytest.mark.rabbitmq
@OTHER_WORKER
def test_a_re_drive_that_dies_between_publishing_and_its_ack_loses_and_doubles_nothing(
    on_rabbitmq, parked
):
    """The document's caveat: there, what was read from the DLQ and not published is gone."""
    (event,) = parked(1)

    with death("broker_redrive.published"):
        run("redrive_events", "--from-broker", QUEUE, "--yes")
    # It is in both places now.
    eventually(lambda: on_rabbitmq.depth(DLQ) == on_rabbitmq.depth(QUEUE) == 1)
    run("redrive_events", "--from-broker", QUEUE, "--yes")
    on_rabbitmq.work_until(lambda: on_rabbitmq.depth(QUEUE) == 0 and on_rabbitmq.effects)

    assert on_rabbitmq.effects == [event]
    assert InboxRecord.objects.get().state == "handled"


def test_failures_emit_logs_with_correlation_id_queue_routing_key_type_and_attempts(joined, caplog):
    caplog.set_level(logging.DEBUG, "django_eventbus")
    joined.subscribe(fail)

    publish("files.uploaded.v1", {}, correlation_id="c-1")
    joined.settle()

    records = [each for each in caplog.records if getattr(each, "attempt", None)]
    assert [(each.code, each.attempt) for each in records] == [
        ("EVENT_RETRIED", 1),
        ("EVENT_RETRIED", 2),
        ("EVENT_PARKED", 3),
    ]
    for record in records:
        assert (record.correlation_id, record.queue) == ("c-1", QUEUE)
        assert record.routing_key == record.event_type == "files.uploaded.v1"
