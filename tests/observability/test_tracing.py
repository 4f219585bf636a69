"""What becomes of an event, as spans: one trace from its cause to its effects."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import transaction
from django.utils import timezone
from opentelemetry.trace import SpanKind, StatusCode

from django_eventbus import GiveUp, RetryLater, Skip, TooEarly, publish, publish_many
from django_eventbus.conf import conf
from django_eventbus.consumer.consumer import Consumer
from django_eventbus.events.message import REDRIVEN_TRACEPARENT, TRACEPARENT, TRACESTATE, Message
from django_eventbus.exceptions import BrokerUnavailable
from django_eventbus.models import InboxRecord, OutboxEvent
from django_eventbus.observability.tracing.spans import LINK_LIMIT
from django_eventbus.observability.tracing.tracer import active_tracer, ids_in
from django_eventbus.outbox.relay import Relay
from django_eventbus.redrive.letters import redrive
from tests.outbox.test_relay import DeadPublisher, ScriptedPublisher
from tests.support.bus import Bus
from tests.support.spans import linked, own_id, parent, traceparent
from tests.support.spans import spans as spans

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "hunter2"
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
ROOT = Path(__file__).parent.parent.parent
GIVEN = f"00-{TRACE}-{SPAN}-01"


class Handler:
    """Raises what it is told to, one error per run, and then nothing."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)

    def __call__(self, event) -> None:
        if self.errors:
            raise self.errors.pop(0)


def subscribed(bus: Bus, *errors: BaseException, **options) -> Handler:
    handler = Handler(*errors)
    bus.subscribe("order.*", **{"name": "charge", "retry": ["5m"], **options})(handler)
    return handler


def carry(bus: Bus) -> None:
    bus.relay()
    bus.consume()


# publish(): the span of the event's creation.


def test_an_event_that_is_published_in_a_request_has_a_span_there_and_carries_its_context(spans):
    with spans.tracer.start_as_current_span("request") as request:
        made = publish("order.placed", {"card": SECRET}, correlation_id="c1")

    created = spans.one("create")
    row = OutboxEvent.objects.get()
    assert (created.name, created.kind) == ("create shop.events:order.placed", SpanKind.PRODUCER)
    assert parent(created) == own_id(request)
    assert row.headers[TRACEPARENT] == traceparent(created.context)
    assert TRACESTATE not in row.headers
    assert created.instrumentation_scope.schema_url == "https://opentelemetry.io/schemas/1.44.0"
    assert dict(created.attributes) == {
        "messaging.system": "django_eventbus",
        "messaging.operation.name": "create",
        "messaging.operation.type": "create",
        "messaging.destination.name": "shop.events:order.placed",
        "messaging.message.id": str(made),
        "messaging.message.conversation_id": "c1",
        "eventbus.event.type": "order.placed",
        "eventbus.event.version": 1,
    }


def test_an_event_that_is_published_outside_of_any_span_begins_a_trace(spans):
    publish("order.placed")

    assert parent(spans.one("create")) == ""


def test_each_of_many_events_has_a_creation_of_its_own(spans):
    publish_many([("order.placed", {}), ("order.placed", {})])

    carried = [row.headers[TRACEPARENT] for row in OutboxEvent.objects.order_by("id")]
    assert carried == [traceparent(span.context) for span in spans.named("create")]
    assert len(set(carried)) == 2


def test_a_context_that_the_caller_gives_is_kept_and_no_span_is_made_for_it(spans):
    publish("order.placed", headers={TRACEPARENT: GIVEN, TRACESTATE: "vendor=1"})

    headers = OutboxEvent.objects.get().headers
    assert (headers[TRACEPARENT], headers[TRACESTATE]) == (GIVEN, "vendor=1")
    assert spans.named("create") == []


def test_the_state_of_other_vendors_is_carried_to_what_the_handler_publishes(bus, spans):
    bus.subscribe("order.*")(lambda event: publish("bill.sent"))
    publish("order.placed", headers={TRACEPARENT: GIVEN, TRACESTATE: "vendor=1"})

    carry(bus)

    headers = OutboxEvent.objects.get(type="bill.sent").headers
    assert ids_in(headers)["trace_id"] == TRACE
    assert headers[TRACESTATE] == "vendor=1"


# The relay: a span per batch, linked to what it carries.


def test_a_batch_is_a_span_that_is_linked_to_the_creation_of_each_event(spans, bus):
    subscribed(bus)
    first, second = publish_many([("order.placed", {}), ("order.placed", {})])
    untraced = publish("order.placed", headers={TRACEPARENT: "none"})

    bus.relay()

    span = spans.one("publish")
    assert (span.name, span.kind) == ("publish shop.events:order.placed", SpanKind.CLIENT)
    assert linked(span) == [own_id(each) for each in spans.named("create")]
    named = [link.attributes["messaging.message.id"] for link in span.links]
    assert named == [str(first), str(second)]
    assert str(untraced) not in named
    assert span.status.status_code is StatusCode.UNSET
    assert dict(span.attributes) == {
        "messaging.system": "django_eventbus",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.batch.message_count": 3,
        "messaging.destination.name": "shop.events:order.placed",
    }


def test_a_batch_to_several_places_names_none_of_them(spans):
    publish_many([("row.ok", {}), ("other.ok", {})])

    Relay(ScriptedPublisher(), "default").relay_once()

    span = spans.one("publish")
    assert span.name == "publish"
    assert "messaging.destination.name" not in span.attributes


def test_each_batch_has_a_span_of_its_own_and_so_many_links_at_most(spans):
    publish_many([("row.ok", {})] * (LINK_LIMIT + 2))
    relay = Relay(ScriptedPublisher(), "default", batch_size=LINK_LIMIT + 1)

    while relay.relay_once():
        pass

    counts = [span.attributes["messaging.batch.message_count"] for span in spans.named("publish")]
    assert counts == [LINK_LIMIT + 1, 1]
    assert [len(span.links) for span in spans.named("publish")] == [LINK_LIMIT, 1]


@pytest.mark.parametrize(
    ("types", "worst"),
    [
        (["row.ok", "row.lost"], "unroutable"),
        (["row.lost", "row.full"], "refused"),
        (["row.full", "row.broken", "row.lost"], "rejected"),
    ],
)
def test_a_batch_of_which_something_was_not_taken_is_an_error(spans, types, worst):
    made = publish_many([(each, {"card": SECRET}) for each in types])

    Relay(ScriptedPublisher(), "default").relay_once()

    span = spans.one("publish")
    bad = [str(event) for event, each in zip(made, types, strict=True) if each != "row.ok"]
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, worst)
    assert (span.attributes["error.type"], span.attributes["eventbus.not_taken"]) == (
        worst,
        len(bad),
    )
    assert [event.attributes["messaging.message.id"] for event in span.events] == bad


def test_what_is_unroutable_and_ignored_is_no_error(spans, bus, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "UNROUTABLE": "ignore"}
    publish("order.placed")

    bus.relay()

    span = spans.one("publish")
    assert span.status.status_code is StatusCode.UNSET
    assert span.events == ()


def test_a_batch_that_the_broker_went_away_from_is_an_error(spans):
    publish("row.ok")

    with pytest.raises(BrokerUnavailable):
        Relay(DeadPublisher(), "default").relay_once()

    span = spans.one("publish")
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"] == "django_eventbus.exceptions.BrokerUnavailable"


# The consumer: a span per subscription.


def test_a_handled_message_is_a_span_in_the_trace_of_its_creation(bus, spans):
    subscribed(bus)
    made = publish("order.placed", {"card": SECRET}, correlation_id="c1")

    carry(bus)

    created, span = spans.one("create"), spans.one("process")
    place = "shop.events:order.placed:shop.shop-tests"
    assert (span.name, span.kind) == (f"process {place}", SpanKind.CONSUMER)
    assert span.context.trace_id == created.context.trace_id
    assert parent(span) == own_id(created)
    assert linked(span) == [own_id(created)]
    assert span.status.status_code is StatusCode.UNSET
    assert dict(span.attributes) == {
        "messaging.system": "django_eventbus",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": place,
        "messaging.message.id": str(made),
        "messaging.message.conversation_id": "c1",
        "eventbus.event.type": "order.placed",
        "eventbus.event.version": 1,
        "eventbus.queue": "shop.shop-tests",
        "eventbus.subscription": "charge",
        "eventbus.attempt": 1,
        "eventbus.round": 0,
        "eventbus.outcome": "handled",
    }


@pytest.mark.parametrize(
    ("error", "outcome", "status"),
    [
        (ValueError(SECRET), "retried", StatusCode.ERROR),
        (GiveUp(SECRET), "parked", StatusCode.ERROR),
        (SystemExit(SECRET), "retried", StatusCode.ERROR),
        (Skip(SECRET), "skipped", StatusCode.UNSET),
        (TooEarly(SECRET, until=timezone.now() + timedelta(hours=1)), "deferred", StatusCode.UNSET),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_every_outcome_is_told_with_its_error_but_never_with_its_words(
    bus, spans, error, outcome, status
):
    subscribed(bus, error)
    publish("order.placed", {"card": SECRET})

    carry(bus)

    span = spans.one("process")
    (event,) = span.events
    assert span.attributes["eventbus.outcome"] == outcome
    assert span.status.status_code is status
    assert event.name == "exception"
    assert event.attributes["exception.type"].endswith(type(error).__qualname__)
    assert "test_tracing.py" in event.attributes["exception.stacktrace"]
    assert SECRET not in span.to_json()


def test_what_is_parked_says_of_which_kind_it_is(bus, spans):
    subscribed(bus, GiveUp())
    publish("order.placed")

    carry(bus)

    span = spans.one("process")
    assert span.attributes["eventbus.kind"] == "given_up"
    assert span.attributes["error.type"] == "django_eventbus.exceptions.GiveUp"


def test_a_message_that_arrives_twice_is_repeated(bus, spans):
    subscribed(bus)
    message = bus.put(headers={TRACEPARENT: GIVEN})
    bus.consume()
    bus.put(message)

    bus.consume()

    outcomes = [span.attributes["eventbus.outcome"] for span in spans.named("process")]
    assert outcomes == ["handled", "repeated"]
    assert spans.traces == {TRACE}


def test_a_message_that_another_worker_holds_up_is_returned_and_no_error(bus, spans):
    subscribed(bus)
    message = bus.put()
    bus.receive()
    bus.pass_time()
    delivery = bus.receive()
    InboxRecord.objects.create(
        subscription="charge", message_id=message.id, queue=delivery.queue, state="started",
        started=conf.start_limit - 1,
    )  # fmt: skip
    isolation = bus.consumer.inbox.isolation
    isolation.patience = 0.01

    with isolation.together():
        bus.settle(delivery)

    span = spans.one("process")
    assert span.attributes["eventbus.outcome"] == "returned"
    assert span.status.status_code is StatusCode.UNSET


def test_a_message_that_an_outage_cut_short_is_returned_as_an_error(bus, spans, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "PARK_TO": "broker"}
    subscribed(bus, GiveUp())
    bus.put()
    consumer = Consumer(DeadPublisher(), lambda queue: "dlq")

    with pytest.raises(BrokerUnavailable):
        consumer.consume(bus.receive())

    span = spans.one("process")
    assert span.attributes["eventbus.outcome"] == "returned"
    assert span.attributes["error.type"] == "django_eventbus.exceptions.BrokerUnavailable"


@pytest.mark.parametrize(
    "given",
    [
        "",
        "nonsense",
        7,
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"{GIVEN}\n",
        "é" * 300,
    ],
)
def test_a_context_that_cannot_be_read_is_none_and_harms_nothing(bus, spans, given):
    subscribed(bus)
    bus.put(headers={TRACEPARENT: given, TRACESTATE: "=,=" * 300})

    bus.consume()

    span = spans.one("process")
    assert (parent(span), span.links) == ("", ())
    assert span.attributes["eventbus.outcome"] == "handled"


def test_whoever_consumes_within_a_span_of_their_own_is_linked(bus, spans):
    subscribed(bus)
    publish("order.placed")
    bus.relay()

    with spans.tracer.start_as_current_span("turn") as turn:
        bus.consume()

    created = spans.one("create")
    assert parent(spans.one("process")) == own_id(created)
    assert linked(spans.one("process")) == [own_id(created), own_id(turn)]


# One trace: causes, effects, retries and re-drives.


def test_cause_and_effects_are_one_trace(bus, spans):
    @bus.subscribe("order.placed", name="charge")
    def charge(event):
        publish("bill.sent")
        transaction.on_commit(lambda: publish("bill.archived"))

    bus.subscribe("bill.*", name="book")(lambda event: None)
    with spans.tracer.start_as_current_span("request") as request:
        publish("order.placed")
    bus.drain()

    placed, *bills = spans.named("create")
    charged, *booked = spans.named("process")
    assert parent(placed) == own_id(request)
    assert [parent(each) for each in (charged, *bills)] == [own_id(placed), *[own_id(charged)] * 2]
    assert [parent(each) for each in booked] == [own_id(each) for each in bills]
    in_trace = [*spans.named("create"), *spans.named("process")]
    assert {each.context.trace_id for each in in_trace} == {request.context.trace_id}


def test_what_a_hook_publishes_is_an_effect_too(bus, spans):
    subscribed(bus, GiveUp(), on_parked=lambda error, event: publish("charge.failed"))
    publish("order.placed")

    carry(bus)

    assert parent(spans.named("create")[1]) == own_id(spans.one("process"))


@pytest.mark.parametrize("error", [ValueError(), RetryLater(after="7s")], ids=["tier", "outbox"])
def test_retries_are_in_the_trace_of_their_event_with_their_attempt(bus, spans, error):
    subscribed(bus, error, error, tries=3)
    publish("order.placed")

    bus.drain()

    told = [span.attributes for span in spans.named("process")]
    assert [each["eventbus.attempt"] for each in told] == [1, 2, 3]
    assert [each["eventbus.outcome"] for each in told] == ["retried", "retried", "handled"]
    created = own_id(spans.one("create"))
    assert [parent(span) for span in spans.named("process")] == [created] * 3
    assert len({span.name for span in spans.named("process")}) == 1


def test_a_redrive_stays_in_the_trace_and_is_linked_to_whoever_did_it(bus, spans):
    subscribed(bus, GiveUp())
    publish("order.placed")
    bus.drain()

    with spans.tracer.start_as_current_span("admin") as admin:
        redrive([bus.letter.pk], by="ada", using="default")
    bus.drain()

    created, again = spans.named("create")
    parked, healed = spans.named("process")
    assert [parent(each) for each in (parked, healed)] == [own_id(created)] * 2
    assert healed.attributes["eventbus.round"] == 1
    assert (parent(again), linked(again)) == (own_id(admin), [own_id(created)])
    assert linked(healed) == [own_id(created), own_id(again)]
    assert linked(spans.named("publish")[1]) == [own_id(created), own_id(again)]
    assert bus.letter.state == "healed"


def test_a_redrive_that_nobody_traces_is_linked_to_none_of_the_past(bus):
    subscribed(bus, GiveUp())
    bus.put(headers={TRACEPARENT: GIVEN, REDRIVEN_TRACEPARENT: GIVEN})
    bus.consume()

    redrive([bus.letter.pk], by="ada", using="default")

    headers = OutboxEvent.objects.get().headers
    assert (headers[TRACEPARENT], headers[REDRIVEN_TRACEPARENT]) == (GIVEN, "")


def test_a_copy_without_its_headers_is_still_in_its_trace():
    message = Message(id="1", type="a.b", body=b"", headers={TRACEPARENT: GIVEN, "bad": object()})

    assert message.stripped().headers == {TRACEPARENT: GIVEN}


# Without an SDK, and without OpenTelemetry.


def test_without_an_sdk_nothing_is_made_and_nothing_is_carried(bus):
    subscribed(bus)
    publish("order.placed")

    carry(bus)

    assert active_tracer() is None
    assert OutboxEvent.objects.get().headers == {"eventbus-version": 1}


WITHOUT = """
import sys
sys.modules["opentelemetry"] = None
import django
from django.conf import settings
settings.configure(
    SECRET_KEY="x", USE_TZ=True, EVENTBUS={"SERVICE": "shop"},
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django_eventbus"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "bus.sqlite3"}},
    LOGGING={
        "version": 1,
        "formatters": {"json": {"()": "django_eventbus.observability.json_logs.JsonFormatter"}},
        "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "json"}},
        "loggers": {"django_eventbus": {"handlers": ["console"], "level": "DEBUG"}},
    },
)
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
from django_eventbus import publish, subscribe
subscribe("order.*", name="charge")(lambda event: print(event.meta.headers))
publish("order.placed", headers={"traceparent": "%s"})
call_command("consume_events", "--with-relay", "--burst")
"""


def test_without_opentelemetry_everything_else_works_and_a_given_context_is_carried(
    tmp_path,
):
    hidden = ("DJANGO_SETTINGS_MODULE", "EVENTBUS_", "COVERAGE_PROCESS_CONFIG")
    environment = {name: each for name, each in os.environ.items() if not name.startswith(hidden)}

    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT % GIVEN],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    assert GIVEN in ended.stdout
    assert '"code": "EVENT_HANDLED"' in ended.stderr
    assert "trace_id" not in ended.stderr
