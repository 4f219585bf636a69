"""nano-service: validation, inbox, backoff, callbacks, debug, ping, outages: section by section."""

from __future__ import annotations

import json
import logging

import pytest
from django.db import OperationalError

from django_eventbus import GiveUp, RetryLater, Skip, publish
from django_eventbus.conf import conf
from django_eventbus.events.message import uuid7
from django_eventbus.models import Attempt, DeadLetter, InboxRecord
from django_eventbus.subscriptions.retries import RetryPolicy
from tests.shop.models import Effect
from tests.support.buses import LAYOUTS
from tests.support.helpers import eventually
from tests.support.own_broker import OTHER_WORKER
from tests.support.tables import table

LAYOUT = LAYOUTS["nano-service"]
QUEUE, FAILED = "easyweek.invoice-service", "easyweek.invoice-service.failed"
ENVELOPE = {
    "meta": {"tenant": "acme"},
    "payload": {"invoice_id": 7},
    "status": {"code": "created"},
    "system": {"is_debug": False},
}


def leave_effect(event):
    Effect.objects.create(event_id=event.meta.id, subscription="handler")


def failing(times):
    def handler(event):
        leave_effect(event)
        if event.meta.attempt <= times:
            raise ConnectionError("external API unavailable")

    return handler


def envelope(**changes):
    return json.dumps({**ENVELOPE, **changes}).encode()


# 1.4 Design decisions


@pytest.mark.rabbitmq
@OTHER_WORKER
def test_the_delayed_exchange_is_replaced_by_tiers(on_rabbitmq):
    deaths = []

    def handler(event):
        deaths.extend(event.meta.headers.get("x-death", []))
        failing(2)(event)

    on_rabbitmq.subscribe(handler)
    event = on_rabbitmq.put("invoice.paid", envelope())

    on_rabbitmq.settle()

    assert on_rabbitmq.effects == [event]
    tiers = [each["queue"] for each in deaths]
    assert tiers == [f"{QUEUE}.retry.1s", f"{QUEUE}.retry.5s"]


def test_one_queue_per_service_named_after_project_and_service(settings, joined):
    assert (joined.queue, conf.events_exchange) == (QUEUE, "easyweek.bus")


@pytest.mark.rabbitmq
@OTHER_WORKER
def test_with_prefetch_1_each_worker_has_one_message_at_a_time(on_rabbitmq):
    on_rabbitmq.subscribe(leave_effect)
    for _ in range(3):
        on_rabbitmq.put("invoice.paid")
    workers = [on_rabbitmq.transport.subscriber([QUEUE], prefetch=1) for _ in range(2)]

    try:
        held = [worker.receive(5) for worker in workers]
        assert all(held)
        eventually(lambda: on_rabbitmq.depth(QUEUE) == 1)
    finally:
        for worker in workers:
            worker.close()


@pytest.mark.rabbitmq
@OTHER_WORKER
def test_messages_are_persistent(on_rabbitmq):
    on_rabbitmq.subscribe(leave_effect, "other.thing")
    publish("invoice.paid", {})

    on_rabbitmq.relayer.relay_once()

    ((properties, _),) = on_rabbitmq.taken(LAYOUT.bystander)
    assert properties.delivery_mode == 2


# 2.3 Circuit breaker for outages: tests/transports/rabbitmq/test_chaos.py kills the broker under load.


@pytest.mark.rabbitmq
@OTHER_WORKER
def test_the_consumer_survives_an_outage_and_says_so_once_each_way(manage, own_node, amqp):
    env = amqp.with_settings(BROKER_URL=own_node.server.url)
    own_node.server.stop()
    try:
        worker = manage("consume_events", env=env, is_measured=True)
        worker.wait_for("Outage:")
    finally:
        own_node.server.start()

    worker.wait_for("over", timeout=60)
    worker.terminate()

    assert worker.wait() == 0
    assert worker.output.count("Outage:") == 1


# 2.5 Validation


INVALID = {
    "missing message_id": ({"message_id": ""}, envelope(), ["message_id"]),
    "missing app_id": ({"app_id": ""}, envelope(), ["app_id"]),
    "invalid JSON payload": ({}, b"{", ["not JSON"]),
    "missing parts": ({}, b"{}", ["meta", "payload", "status", "system"]),
    "all of it": ({"message_id": "", "app_id": ""}, b"[1]", ["message_id", "app_id", "object"]),
}
ON_DATABASE = {"message_id": "id", "app_id": "source"}


@pytest.mark.parametrize(("changes", "body", "reasons"), INVALID.values(), ids=INVALID)
def test_an_invalid_message_is_parked_with_every_reason_and_not_acked_away(
    joined, changes, body, reasons
):
    joined.subscribe(leave_effect)
    names = {} if joined.is_broker else ON_DATABASE

    joined.put("invoice.paid", body, **{names.get(key, key): each for key, each in changes.items()})
    event = joined.put("invoice.paid", envelope())
    joined.work_until(lambda: joined.effects and DeadLetter.objects.exists())

    assert joined.effects == [event]
    letter = joined.letter
    assert (letter.kind, bytes(letter.body)) == ("undecodable", body)
    assert [each for each in reasons if each not in letter.error] == []


@pytest.mark.rabbitmq
@OTHER_WORKER
def test_a_missing_type_is_the_routing_key(on_rabbitmq):
    on_rabbitmq.subscribe(leave_effect)

    event = on_rabbitmq.put("invoice.paid", envelope(), type=None)
    on_rabbitmq.settle()

    assert on_rabbitmq.effects == [event]


def test_the_parts_of_an_envelope_reach_the_handler(joined):
    seen = []
    joined.subscribe(lambda event: seen.append((event.payload, event.meta)))

    joined.put("invoice.paid", envelope())
    joined.settle()

    ((payload, meta),) = seen
    assert payload == ENVELOPE["payload"]
    assert (meta.type, meta.source) == ("invoice.paid", "somebody")
    assert meta.extra == {key: ENVELOPE[key] for key in ("meta", "status", "system")}


def test_what_is_published_is_an_envelope_too(joined):
    joined.subscribe(leave_effect)

    event = str(publish("invoice.paid", {"invoice_id": 7}, headers={"tenant": "acme"}))
    joined.settle()

    assert joined.effects == [event]
    ((properties, body),) = joined.taken(LAYOUT.bystander)
    parts = json.loads(body)
    assert (properties.message_id, properties.type) == (event, "invoice.paid")
    assert properties.app_id == "invoice-service"
    assert (parts["payload"], parts["meta"]) == ({"invoice_id": 7}, {"tenant": "acme"})
    assert (parts["status"], parts["system"]) == ({}, {"is_debug": False})


# 2.6 Inbox


def test_a_duplicate_message_is_detected_and_skipped(joined):
    joined.subscribe(leave_effect)
    event = str(uuid7())
    name = "message_id" if joined.is_broker else "id"

    for _ in range(2):
        joined.put("invoice.paid", envelope(), **{name: event})
    joined.work_until(lambda: joined.effects and joined.depth(QUEUE) == 0)
    joined.work()

    assert joined.effects == [event]
    assert InboxRecord.objects.get().state == "handled"


def test_an_ack_failure_redelivers_and_the_inbox_skips(joined):
    joined.subscribe(leave_effect)
    event = joined.put("invoice.paid", envelope())

    joined.die_before_ack()
    joined.work_until(lambda: joined.depth(QUEUE) == 0)

    assert joined.effects == [event]


def test_retry_tracking_is_persisted_with_the_last_error(joined):
    joined.subscribe(failing(99))
    joined.put("invoice.paid", envelope())

    retried_once = InboxRecord.objects.filter(state="retrying", attempt=2)
    joined.work_by_ones_until(retried_once.exists)
    assert "external API unavailable" in InboxRecord.objects.get().error
    joined.settle()

    record = InboxRecord.objects.get()
    assert (record.state, record.source) == ("parked", "somebody")
    assert Attempt.objects.count() == record.attempt == 4


# 3.2 Retry count


def test_the_first_attempt_has_no_retry_count_and_each_retry_adds_one(joined):
    seen = []

    def handler(event):
        seen.append((event.meta.attempt, event.meta.headers.get("x-retry-count", 0)))
        failing(2)(event)

    joined.subscribe(handler)
    joined.put("invoice.paid", envelope())
    joined.settle()

    assert seen == [(1, 0), (2, 1), (3, 2)]


def test_first_retry_and_last_attempts_can_be_told_apart(joined):
    seen = []

    def handler(event):
        seen.append(
            "first" if event.meta.attempt == 1 else "last" if event.meta.is_last else "retry"
        )
        raise ValueError("no")

    joined.subscribe(handler, tries=4)
    joined.put("invoice.paid", envelope())
    joined.settle()

    assert seen == ["first", "retry", "retry", "last"]


# 3.3 Backoff


@table(
    ("backoff", "expected"),
    [
        ([1, 5, 60], [1, 5, 60, 60, 60]),
        ([30], [30, 30, 30]),
        ([0, 1, 5], [0, 1, 5, 5]),
        ([5, 30, 300], [5, 30, 300]),
        ([1, 1, 2, 5, 10], [1, 1, 2, 5, 10]),
    ],
)
def test_backoff_calculation(backoff, expected):
    policy = RetryPolicy(delays=tuple(map(float, backoff)), tries=99)

    assert [policy.delay_after(retry) for retry in range(1, len(expected) + 1)] == expected


@pytest.mark.parametrize(
    ("retry", "tries", "delays"),
    [
        (["1s", "5s", "1m"], 3, ["1s", "5s"]),
        (["1s", "5s", "1m"], 5, ["1s", "5s", "1m", "1m"]),
        ("5s", 3, ["5s", "5s"]),
    ],
    ids=["array", "tries beyond the array", "scalar"],
)
def test_a_retry_timeline(joined, caplog, retry, tries, delays):
    caplog.set_level(logging.DEBUG, "django_eventbus")
    joined.subscribe(failing(99), retry=retry, tries=tries)
    joined.put("invoice.paid", envelope())

    joined.settle()

    assert joined.attempts == tries
    lines = [each.getMessage() for each in caplog.records]
    said = [line.split(" in ")[1].split(":")[0] for line in lines if line.startswith("Retrying")]
    assert said == delays


# 3.2 Catch and failed callbacks


def test_catch_is_called_on_each_retry_and_failed_once_at_the_end(joined):
    calls = []
    joined.subscribe(
        failing(99),
        tries=3,
        on_retry=lambda error, event: calls.append(("catch", str(error), event.meta.attempt)),
        on_parked=lambda error, event: calls.append(("failed", str(error), event.meta.attempt)),
    )
    joined.put("invoice.paid", envelope())

    joined.settle()

    words = "external API unavailable"
    assert calls == [("catch", words, 1), ("catch", words, 2), ("failed", words, 3)]


def test_errors_in_a_callback_do_not_prevent_the_retry(joined):
    def broken(error, event):
        raise RuntimeError("the callback itself fails")

    joined.subscribe(failing(1), on_retry=broken)
    event = joined.put("invoice.paid", envelope())

    joined.settle()

    assert joined.effects == [event]


# 3.2 Final failure


@pytest.mark.rabbitmq
@OTHER_WORKER
def test_after_max_retries_it_is_in_the_failed_queue_with_its_error_and_count(on_rabbitmq):
    on_rabbitmq.configure(PARK_TO="broker", COLLECT_DLQ=False)
    on_rabbitmq.subscribe(failing(99), tries=3)
    event = on_rabbitmq.put("invoice.paid", envelope())

    on_rabbitmq.settle()

    eventually(lambda: on_rabbitmq.depth(FAILED) == 1)
    ((properties, body),) = on_rabbitmq.taken(FAILED)
    assert properties.message_id == event
    assert properties.headers["x-final-retry-count"] == 2
    assert "external API unavailable" in properties.headers["x-final-error"]
    parts = json.loads(body)
    assert parts["payload"] == ENVELOPE["payload"]
    assert "external API unavailable" in parts["system"]["consumer_error"]


# 3.2 Debug


@pytest.mark.parametrize("is_debug", [True, False])
def test_a_debug_message_uses_the_debug_callback(joined, is_debug):
    told = []
    joined.subscribe(leave_effect, debug_handler=lambda event: told.append(event.meta.is_debug))

    joined.put("invoice.paid", envelope(system={"is_debug": is_debug}))
    joined.settle()

    assert (told, len(joined.effects)) == (([True], 0) if is_debug else ([], 1))


def test_without_a_debug_callback_the_regular_one_is_used(joined):
    joined.subscribe(leave_effect)

    event = str(publish("invoice.paid", {}, debug=True))
    joined.settle()

    assert joined.effects == [event]


# 3.2 System events


def test_a_system_event_does_not_require_user_code_to_handle(joined):
    joined.subscribe(leave_effect, "#")

    joined.put("system.ping.1", envelope())
    event = joined.put("invoice.paid", envelope())
    joined.work_until(lambda: joined.depth(QUEUE) == 0 and joined.effects)

    assert joined.effects == [event]
    assert InboxRecord.objects.count() == 1
    assert not DeadLetter.objects.exists()


# 3.5 Transient and permanent failures


class ServiceUnavailable(Exception):
    status_code = 503


class NotFound(Exception):
    status_code = 404


def raising(error):
    def handler(event):
        leave_effect(event)
        if event.meta.attempt == 1 and error:
            raise error

    return handler


TREE = {
    "validation error": (GiveUp("invalid payload"), "parked", 0),
    "resource not found": (Skip("invoice not found"), "skipped", 0),
    "resource not found, as a status": (NotFound(), "parked", 0),
    "already processed": (None, "handled", 1),
    "external service unavailable": (ServiceUnavailable(), "handled", 1),
    "timeout": (TimeoutError("timed out"), "handled", 1),
    "database connection of the handler's own": (OperationalError("another one"), "handled", 1),
    "circuit breaker open": (RetryLater("circuit open", after=0.1), "handled", 1),
    "unknown error": (RuntimeError("?"), "handled", 1),
}


@pytest.mark.parametrize(("error", "state", "effects"), TREE.values(), ids=TREE)
def test_error_handling_decision_tree(joined, error, state, effects):
    joined.subscribe(raising(error))
    joined.put("invoice.paid", envelope())

    joined.settle()

    assert InboxRecord.objects.get().state == state
    assert len(joined.effects) == effects
    assert DeadLetter.objects.count() == (state == "parked")


# 3.5 Log levels


def test_log_levels_by_scenario(joined, caplog):
    caplog.set_level(logging.DEBUG, "django_eventbus")
    errors = {"ok": None, "skip": Skip("no"), "retry": ValueError("no"), "park": GiveUp("no")}

    def handler(event):
        raising(errors[event.payload["do"]])(event)

    joined.subscribe(handler)
    for do in errors:
        publish("invoice.paid", {"do": do})
    joined.settle(len(errors))

    levels = {each.code: each.levelname for each in caplog.records if hasattr(each, "code")}
    assert levels["EVENT_HANDLED"] == "DEBUG"
    assert levels["EVENT_SKIPPED"] == "WARNING"
    assert levels["EVENT_RETRIED"] == "ERROR"
    assert levels["EVENT_PARKED"] == "CRITICAL"
