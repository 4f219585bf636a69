"""FreeFlow: three tiers per domain that return through the topic exchange, one DLQ for all."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command

from django_eventbus import GiveUp, publish
from django_eventbus.conf import conf
from django_eventbus.durations import label
from tests.shop.models import Effect
from tests.support.buses import LAYOUTS, recipe
from tests.support.helpers import eventually
from tests.support.own_broker import OTHER_WORKER

LAYOUT = LAYOUTS["freeflow"]
TIERS = ("30s", "5m", "30m")
DOMAINS = ("user", "auth", "alarm", "document", "workflow", "notification", "audit")
DLQ = "freeflow.events.dlq"


def failing(times, headers):
    """Return a handler that fails *times* times, and keeps the headers of what it was given."""

    def handler(event):
        headers.append(dict(event.meta.headers))
        Effect.objects.create(event_id=event.meta.id, subscription="handler")
        if event.meta.attempt <= times:
            raise ConnectionError("the other side is away")

    return handler


@pytest.mark.parametrize("domain", DOMAINS)
def test_each_domain_has_three_delay_tiers(domain, settings):
    settings.EVENTBUS = {**recipe(LAYOUT.heading), "SERVICE": domain}
    queue, labels = conf.queue(), [label(each) for each in conf.retry_delays]

    assert labels == list(TIERS)
    for delay in labels:
        tier = conf.queue_part("tier", queue, delay=delay)
        assert tier == f"freeflow.{domain}.retry.{delay}"
        assert conf.queue_part("tier_key", queue, delay=delay, tier=tier) == f"{domain}.{delay}"
        assert conf.queue_part("tier_return_key", queue, delay=delay) == f"{domain}.retry"
    assert conf.queue_part("retry_exchange", queue) == "freeflow.events.retry"
    assert conf.queue_part("tier_return_exchange", queue, delay="30s") == "freeflow.events"


def test_a_failed_message_comes_back_after_each_delay_with_the_recommended_headers(joined):
    seen = []
    joined.subscribe(failing(3, seen), "user.*")

    event = str(publish("user.created", {"n": 1}))
    joined.settle()

    assert joined.effects == [event]
    assert [each.get("x-retry-count", 0) for each in seen] == [0, 1, 2, 3]
    for headers in seen[1:]:
        assert headers["x-original-routing-key"] == "user.created"
        assert headers["x-original-exchange"] == "freeflow.events"


@pytest.mark.rabbitmq
@OTHER_WORKER
def test_rabbitmq_dead_letters_each_tier_to_the_main_exchange_with_the_key_of_the_domain(
    on_rabbitmq,
):
    seen = []
    on_rabbitmq.subscribe(failing(3, seen), "user.*")
    on_rabbitmq.put("user.created")

    on_rabbitmq.settle()

    deaths = [death for headers in seen for death in headers.get("x-death", [])]
    assert [death["queue"] for death in deaths] == [f"freeflow.user.retry.{each}" for each in TIERS]
    assert {death["reason"] for death in deaths} == {"expired"}
    assert {death["exchange"] for death in deaths} == {"freeflow.events.retry"}
    # The key matches the binding of the domain, and also those of whoever wants everything.
    copies = [retries for _, retries in on_rabbitmq.seen_by("freeflow.audit")]
    assert copies == [0, 1, 2, 3]


def test_if_it_fails_again_it_repeats_and_is_then_sent_to_the_dlq(joined):
    joined.subscribe(failing(99, []), "user.*")
    joined.put("user.created")

    joined.settle()

    assert (joined.letter.kind, joined.attempts) == ("failed", len(TIERS) + 1)
    assert joined.effects == []


@pytest.mark.rabbitmq
@OTHER_WORKER
def test_a_non_recoverable_message_is_sent_to_the_dlq_for_manual_inspection(on_rabbitmq):
    def handler(event):
        raise GiveUp("non-recoverable")

    on_rabbitmq.configure(PARK_TO="broker")
    on_rabbitmq.subscribe(handler, "user.*")
    event = on_rabbitmq.put("user.created", b'{"n":1}')

    on_rabbitmq.settle()

    out = StringIO()
    eventually(lambda: on_rabbitmq.depth(DLQ))
    call_command("eventbus_dlq", DLQ, stdout=out)
    assert event in out.getvalue()
    ((properties, body),) = on_rabbitmq.taken(DLQ)
    assert (properties.message_id, body) == (event, b'{"n":1}')


@pytest.mark.rabbitmq
@OTHER_WORKER
def test_the_dlq_that_everybody_shares_is_left_to_everybody(on_rabbitmq):
    on_rabbitmq.subscribe(failing(0, []), "user.*")

    assert not on_rabbitmq.transport.owns_dead_letter_queues()


@pytest.mark.rabbitmq
@OTHER_WORKER
@pytest.mark.parametrize("key", ["user.30s", "user.retry", "user.30m"])
def test_the_retry_queues_are_not_bound_to_the_main_exchange(on_rabbitmq, key):
    on_rabbitmq.put(key)

    eventually(lambda: on_rabbitmq.depth("freeflow.user"))
    for delay in TIERS:
        assert on_rabbitmq.depth(f"freeflow.user.retry.{delay}") == 0
