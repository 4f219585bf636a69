"""A worker on RabbitMQ is scraped: what strangers send, how full the queues are, and outages."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from tests.contrib.test_prometheus import scraped
from tests.support.tcp_proxy import TcpProxy

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgres,
    pytest.mark.rabbitmq,
]


def test_strangers_on_the_broker_add_one_label_and_fill_the_gauges(manage, shop):
    for number in range(10):
        shop.put(type=f"scan.n{number}", body=b"\xff")
    shop.configure(PARK_TO="broker", COLLECT_DLQ=False)

    worker = manage("consume_events", "--metrics-port", "0", env=shop.amqp.environment)

    labels = {"queue": shop.queue, "event_type": "other", "subscription": ""}
    shown = scraped(worker, "eventbus_parked_total", 10, kind="undecodable", **labels)
    assert shown.value("eventbus_outcomes_total") == 10
    shown = scraped(worker, "eventbus_queue_dlq_messages", 10, queue=shop.queue)
    assert shown.value("eventbus_queue_messages", queue=shop.queue) == 0
    assert shown.value("eventbus_queue_consumers", queue=shop.queue) == 1


def test_a_connection_that_is_cut_is_an_outage_with_its_kind_and_its_time(manage, amqp):
    with TcpProxy(urlsplit(amqp.url).port or 5672) as proxy:
        environment = amqp.with_settings(BROKER_URL=proxy.url)
        worker = manage("consume_events", "--metrics-port", "0", env=environment)
        worker.wait_for("Consuming")
        scraped(worker, "eventbus_queue_consumers", 1, queue=amqp.queue("acts"))

        proxy.cut()

        labels = {"part": "consumer", "kind": "connection"}
        shown = scraped(worker, "eventbus_outage_duration_seconds_count", 1, **labels)
        assert shown.value("eventbus_outages_total", **labels) == 1
        worker.terminate()
        assert worker.wait() == 0
