"""One trace from a request to the last effect, through a real broker."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from opentelemetry.trace import StatusCode

from django_eventbus import publish
from django_eventbus.events.message import TRACEPARENT
from django_eventbus.models import DeadLetter, OutboxEvent
from django_eventbus.redrive.letters import redrive
from tests.support.helpers import eventually
from tests.support.spans import linked, own_id, parent, traceparent
from tests.support.spans import spans as spans

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgres,
    pytest.mark.rabbitmq,
]


def acts(spans) -> list:
    found = spans.named("process")
    return [each for each in found if each.attributes["eventbus.subscription"] == "shop.act"]


def worked(shop, spans, outcome) -> bool:
    shop.work()
    return outcome in [each.attributes["eventbus.outcome"] for each in acts(spans)]


def test_a_request_its_event_its_retries_and_its_redrive_are_one_trace(shop, spans):
    with spans.tracer.start_as_current_span("request") as request:
        publish("act.now", {"do": "fail"})
    eventually(lambda: worked(shop, spans, "parked"))
    DeadLetter.objects.update(body=b'{"do": "ok"}')
    with spans.tracer.start_as_current_span("admin") as admin:
        redrive([DeadLetter.objects.get().pk], by="ada", using="default")
    eventually(lambda: worked(shop, spans, "handled"))

    created, again = spans.named("create")
    told = [
        (each.attributes["eventbus.round"], each.attributes["eventbus.attempt"])
        for each in acts(spans)
    ]
    assert told == [(0, 1), (0, 2), (0, 3), (1, 1)]
    assert {parent(each) for each in acts(spans)} == {own_id(created)}
    assert {each.context.trace_id for each in acts(spans)} == {request.context.trace_id}
    assert (parent(created), parent(again)) == (own_id(request), own_id(admin))
    assert linked(acts(spans)[-1]) == [own_id(created), own_id(again)]


def test_spans_name_the_exchange_the_routing_key_and_the_queue(shop, spans):
    publish("act.now", {"do": "ok"})

    eventually(lambda: worked(shop, spans, "handled"))

    place = f"{shop.amqp.namespace}.events:act.now"
    sent = spans.one("publish")
    assert (spans.one("create").name, sent.name) == (f"create {place}", f"publish {place}")
    assert acts(spans)[0].name == f"process {place}:{shop.queue}"
    assert linked(sent) == [own_id(spans.one("create"))]
    for span in (spans.one("create"), acts(spans)[0]):
        assert span.attributes["messaging.system"] == "rabbitmq"
        assert span.attributes["messaging.rabbitmq.destination.routing_key"] == "act.now"


def test_the_context_is_a_header_that_any_client_can_read_and_write(shop, spans):
    publish("act.now", {"do": "ok"})
    with shop.amqp.channel() as channel:
        channel.queue_declare(f"{shop.queue}.side")
        channel.queue_bind(f"{shop.queue}.side", f"{shop.amqp.namespace}.events", "act.now")
        eventually(lambda: worked(shop, spans, "handled"))
        _, properties, _ = channel.basic_get(f"{shop.queue}.side", auto_ack=True)

    assert properties.headers[TRACEPARENT] == traceparent(spans.one("create").context)

    foreign = {TRACEPARENT: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    shop.put(headers=foreign)
    eventually(lambda: worked(shop, spans, "handled") and len(acts(spans)) == 2)
    assert f"{acts(spans)[1].context.trace_id:032x}" == foreign[TRACEPARENT][3:35]


def test_a_batch_that_no_queue_took_is_an_error(shop, spans):
    publish("nobody.listens")

    shop.work()

    span = spans.one("publish")
    assert OutboxEvent.objects.get().state == "unroutable"
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "unroutable")


def test_a_redrive_from_the_dlq_stays_in_the_trace_and_is_linked(shop, spans):
    shop.configure(PARK_TO="broker", COLLECT_DLQ=False)
    trace = {TRACEPARENT: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    shop.put("ok", to=shop.dlq, headers={"eventbus-subscription": "shop.act", **trace})

    with spans.tracer.start_as_current_span("command") as command:
        call_command("redrive_events", from_broker=shop.queue, by="ada", json=True, yes=True)
    eventually(lambda: worked(shop, spans, "handled"))

    again, act = spans.one("create"), acts(spans)[0]
    assert (parent(again), linked(again)) == (own_id(command), ["00f067aa0ba902b7"])
    assert (parent(act), linked(act)) == ("00f067aa0ba902b7", ["00f067aa0ba902b7", own_id(again)])
    assert act.attributes["eventbus.round"] == 1
