"""Broker requests on a real broker: a worker does what was asked for on a page."""

from __future__ import annotations

import threading

import pytest

from django_eventbus import transports
from django_eventbus.conf import conf
from django_eventbus.contrib import celery_runs
from django_eventbus.models import AuditEntry, BrokerRequest, Queue
from django_eventbus.monitoring.heartbeat import this_process
from django_eventbus.monitoring.queue_levels import QueueLevels
from django_eventbus.redrive.broker_requests import BrokerRequestRunner, submit
from django_eventbus.subscriptions.queue_specs import queue_specs
from tests.support.helpers import eventually

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgres,
    pytest.mark.rabbitmq,
]

KILLED = -9
ACT = {"eventbus-subscription": "shop.act"}


@pytest.fixture
def shop(shop):
    shop.configure(PARK_TO="broker", COLLECT_DLQ=False)
    return shop


def run_broker_requests(shop) -> None:
    transport = transports.connect(conf.broker_url)
    worker = this_process("consumer", [shop.queue])
    worker.save(force_insert=True)
    BrokerRequestRunner(transport, worker, threading.Event()).run_waiting()


def test_a_peek_shows_what_lies_there_and_leaves_it(shop):
    ids = [shop.put(to=shop.dlq, headers=ACT) for _ in range(3)]
    submit("peek", shop.queue, limit=2, by="ada")

    run_broker_requests(shop)

    request = BrokerRequest.objects.get()
    assert (request.state, request.error) == ("done", "")
    assert [each["id"] for each in request.result["messages"]] == ids[:2]
    assert eventually(lambda: shop.amqp.count(shop.dlq) == 3)


def test_a_redrive_moves_no_more_than_its_limit_and_says_what_came_of_it(shop):
    ids = [shop.put(to=shop.dlq, headers=ACT) for _ in range(3)]
    submit("redrive", shop.queue, limit=2, by="ada", reason="mended")

    run_broker_requests(shop)

    came = {"moved": 2, "first": ids[:2], "stayed": 0, "left": {}}
    assert BrokerRequest.objects.get().result == came
    assert eventually(lambda: shop.amqp.count(shop.dlq) == 1)
    entry = AuditEntry.objects.order_by("-id").first()
    assert (entry.verb, entry.by, entry.count) == ("redrove DLQ", "ada", 2)


def test_the_audit_counts_all_that_stayed_also_what_is_not_named(shop):
    for _ in range(51):
        shop.put(to=shop.dlq, headers={"x-original-queue": "somebody.else"})
    submit("redrive", shop.queue, limit=100, by="ada", reason="mended")

    run_broker_requests(shop)

    assert len(BrokerRequest.objects.get().result["left"]) == 50
    assert AuditEntry.objects.latest("pk").outcome == {"moved": 0, "left": 51}


def test_a_running_worker_does_broker_requests_and_measures_its_queues(shop, manage):
    shop.put(to=shop.dlq, headers=ACT)
    manage("consume_events", env=shop.amqp.with_settings(PARK_TO="broker", COLLECT_DLQ=False))
    submit("peek", shop.queue, limit=5, by="ada")

    eventually(lambda: BrokerRequest.objects.get().state == "done", timeout=30)
    queue = eventually(lambda: Queue.objects.filter(name=shop.queue).first(), timeout=30)

    assert (queue.dlq, queue.is_collected) == (shop.dlq, False)
    assert queue.messages == 0


def test_a_turn_of_celery_does_broker_requests_too(shop):
    ids = [shop.put(to=shop.dlq, headers=ACT)]
    submit("peek", shop.queue, limit=5, by="ada")

    celery_runs.consume_due(within=60, every=5)

    assert [each["id"] for each in BrokerRequest.objects.get().result["messages"]] == ids


def test_a_kill_after_the_work_leaves_a_broker_request_that_is_abandoned(shop, manage):
    shop.put(to=shop.dlq, headers=ACT)
    submit("redrive", shop.queue, limit=5, by="ada")
    environment = shop.amqp.with_settings(PARK_TO="broker", COLLECT_DLQ=False)

    killed = manage("consume_events", env=environment, kill_at="eventbus.errands.worked")

    assert killed.wait() == KILLED
    assert BrokerRequest.objects.get().state == "running"
    BrokerRequest.objects.update(claimed_at="2026-01-01T00:00Z")
    run_broker_requests(shop)
    assert BrokerRequest.objects.get().state == "abandoned"
    assert eventually(lambda: shop.amqp.count(shop.dlq) == 0)


def test_the_level_of_a_queue_is_asked_for_without_the_management_plugin(shop):
    shop.put(to=shop.dlq)
    shop.put()
    transport = transports.connect(conf.broker_url)
    levels = QueueLevels(transport, queue_specs, this_process("relay", []))

    def look() -> tuple[int | None, int | None]:
        levels.record()
        queue = Queue.objects.get(name=shop.queue)
        return queue.messages, queue.dlq_messages

    assert eventually(lambda: look() == (1, 1))
    assert Queue.objects.get(name=shop.queue).consumers == 0
