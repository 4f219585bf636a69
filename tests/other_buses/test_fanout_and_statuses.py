"""A fanout bus whose consumers answer with HTTP statuses: its document, sentence by sentence."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from django_eventbus import publish
from django_eventbus.conf import conf
from django_eventbus.models import InboxRecord
from django_eventbus.redrive.letters import redrive
from tests.shop.models import Effect
from tests.support.buses import LAYOUTS
from tests.support.own_broker import OTHER_WORKER

LAYOUT = LAYOUTS["wms"]
RETRIES = 10


class Answer(Exception):
    """What an HTTP client raises for a status that is no success."""

    def __init__(self, status_code, **attributes):
        super().__init__(f"answered {status_code}")
        self.status_code = status_code
        vars(self).update(attributes)


def answering(*statuses):
    """Return a handler that answers with one status after the other, then with success."""
    left = list(statuses)

    def handler(event):
        if left and (status := left.pop(0)) >= 300:
            raise Answer(status, retry_after=0.2 if status == 425 else None)
        Effect.objects.create(event_id=event.meta.id, subscription="handler")

    return handler


def always(status):
    return answering(*[status] * 100)


@pytest.mark.parametrize(
    ("service", "prefix"), [("wms-cincout", "wms"), ("xyz-service", "xyz"), ("noprefix", "default")]
)
def test_all_resources_use_a_prefix_derived_from_the_service_name(service, prefix, settings):
    settings.EVENTBUS = {"SERVICE": service}

    assert conf.namespace == prefix
    assert conf.queue().startswith(f"{prefix}.{service}")


def test_exchange_fans_out_message_to_all_bound_service_queues(joined):
    joined.subscribe(answering(200))

    event = str(publish("stock.moved", {}))
    joined.settle()

    assert joined.effects == [event]
    assert joined.seen_by(LAYOUT.bystander) == [(event, 0)]


def test_consumer_acknowledges_and_the_message_is_removed(joined):
    joined.subscribe(answering(200))
    joined.put("stock.moved")

    joined.settle()

    assert joined.depth("wms.queue.wms-stock") == 0


def test_message_is_redelivered_only_to_the_failed_service_not_fanned_out(joined):
    joined.subscribe(answering(503, 503, 200))

    event = str(publish("stock.moved", {}))
    joined.settle()

    assert joined.effects == [event]
    assert joined.attempts == 2
    assert joined.seen_by(LAYOUT.bystander) == [(event, 0)]


def test_after_10_failed_retries_the_message_is_moved_to_the_dlq(joined):
    joined.subscribe(always(500))
    joined.put("stock.moved")

    joined.settle()

    # Ten retries are eleven attempts: the first one is no retry.
    assert joined.attempts == joined.letter.attempts == RETRIES + 1
    assert joined.letter.kind == "failed"
    assert joined.effects == []


def test_delayed_message_waits_until_its_time_without_a_dead_letter_cycle(joined):
    joined.subscribe(answering(200))
    due = timezone.now() + timedelta(seconds=1)
    headers = {"eventbus-not-before": int(due.timestamp() * 1000)}

    joined.put("stock.moved", headers=headers)
    joined.work_by_ones_until(lambda: InboxRecord.objects.filter(state="deferred").exists())
    assert joined.effects == []
    joined.settle()

    assert timezone.now() >= due or not joined.is_broker
    assert (len(joined.effects), joined.attempts) == (1, 0)


STATUSES = [
    ("2xx: success, message removed", [200], {}, "handled", 0),
    ("429: retry, rate limit", [429], {}, "handled", 1),
    ("409: retry, lock conflict", [409], {}, "handled", 1),
    ("425: too early, delayed", [425], {}, "handled", 0),
    ("5xx: retry, transient", [500, 502, 503, 504], {}, "handled", 4),
    ("other 4xx: parked at once by default", [404], {}, "parked", 1),
    ("other 4xx: retried by option", [404, 422], {"retry_client_errors": True}, "handled", 2),
    ("3xx: parked", [302], {}, "parked", 1),
    ("any at the last retry: parked", [503] * 100, {}, "parked", RETRIES + 1),
    ("other 4xx at the last retry", [400] * 100, {"retry_client_errors": True}, "parked", 11),
]


@pytest.mark.parametrize(
    ("statuses", "options", "state", "failures"),
    [row[1:] for row in STATUSES],
    ids=[row[0] for row in STATUSES],
)
def test_consumer_status_handling(joined, statuses, options, state, failures):
    joined.subscribe(answering(*statuses), **options)
    joined.put("stock.moved")

    joined.settle()

    assert InboxRecord.objects.get().state == state
    assert joined.attempts == failures
    assert len(joined.effects) == (state == "handled")


def test_an_exception_of_the_consumer_is_a_dead_letter_retry(joined):
    def handler(event):
        Effect.objects.create(event_id=event.meta.id, subscription="handler")
        if event.meta.attempt == 1:
            raise RuntimeError("consumer error")

    joined.subscribe(handler)
    joined.put("stock.moved")

    joined.settle()

    assert (len(joined.effects), joined.attempts) == (1, 1)


@pytest.mark.parametrize("status", [503, None], ids=["a status", "an exception"])
@pytest.mark.rabbitmq
@OTHER_WORKER
def test_messages_in_the_dlq_include_additional_headers_for_debugging(on_rabbitmq, status):
    def handler(event):
        raise Answer(status) if status else ValueError("no stock")

    on_rabbitmq.configure(PARK_TO="broker", COLLECT_DLQ=False)
    on_rabbitmq.subscribe(handler)
    on_rabbitmq.put("stock.moved", headers={"x-retry-count": RETRIES})

    on_rabbitmq.settle()

    ((properties, body),) = on_rabbitmq.taken("wms.dlq.wms-stock")
    headers = properties.headers
    assert headers["x-original-queue"] == "wms.queue.wms-stock"
    assert headers["x-final-retry-count"] == RETRIES
    assert headers.get("x-final-status-code") == status
    assert ("answered 503" if status else "no stock") in headers["x-final-error"]
    assert body == b"{}"


def test_manual_retry_fixes_the_issue_and_moves_the_message_back(joined):
    is_fixed = []

    def handler(event):
        if not is_fixed:
            raise Answer(503)
        Effect.objects.create(event_id=event.meta.id, subscription="handler")

    joined.subscribe(handler)
    event = str(publish("stock.moved", {}))
    joined.settle()
    assert joined.seen_by(LAYOUT.bystander) == [(event, 0)]

    is_fixed.append(True)
    assert redrive([joined.letter.pk], by="ada", using="default") == 1
    joined.work_until(lambda: joined.letter.state == "healed")

    # Unlike there, the count does not go on where it was: a re-drive is a new round.
    assert (joined.effects, joined.letter.round) == ([event], 1)
    assert joined.attempts == RETRIES + 1
    assert joined.seen_by(LAYOUT.bystander) == []
