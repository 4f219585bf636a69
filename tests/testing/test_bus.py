"""The bus in a project's own tests: in the test's transaction, on the database and on RabbitMQ."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase
from django.utils import timezone

from django_eventbus import (
    Event,
    GiveUp,
    RetryLater,
    Skip,
    TooEarly,
    handle_command,
    publish,
    publish_many,
    send_command,
    subscribe,
)
from django_eventbus.exceptions import BadSetting, InvalidEvent
from django_eventbus.models import InboxRecord, OutboxEvent
from django_eventbus.redrive.letters import redrive
from django_eventbus.testing import (
    Duplicate,
    EventBus,
    EventBusMixin,
    Handled,
    Park,
    Retry,
    Skipped,
    broker_choice,
)
from django_eventbus.testing.bus import NotQuiet
from tests.shop.models import Effect
from tests.support.amqp import Amqp


class OrderPlaced(Event, type="order.placed"):
    order_id: int
    total: Decimal = Decimal(0)
    lines: dict[str, int] = {}


@pytest.fixture
def opened(settings, no_subscriptions):
    """Open a bus on the broker at a URL."""

    @contextmanager
    def opened(url="database://"):
        settings.EVENTBUS = broker_choice.settings_for(url, settings.EVENTBUS)
        bus = EventBus()
        try:
            yield bus
        finally:
            bus.close()

    return opened


@pytest.fixture
def eventbus(db, opened):
    with opened() as bus:
        yield bus


@pytest.fixture(params=["database", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
def everywhere(request, db, opened):
    """The bus in an ordinary test, whose transaction is rolled back, on each transport."""
    is_database = request.param == "database"
    with opened("database://" if is_database else request.getfixturevalue("rabbitmq_url")) as bus:
        yield bus


def leave_effect(event):
    Effect.objects.create(event_id=event.meta.id, subscription=event.meta.subscription)


# What was published.


def test_an_event_is_found_by_its_class_and_some_of_its_fields(eventbus):
    publish(OrderPlaced(order_id=1, total=Decimal("24.90")), key=7)

    event = eventbus.assert_published(OrderPlaced, order_id=1, total=Decimal("24.9"), key=7)

    assert (event.order_id, event.total, event.meta.key) == (1, Decimal("24.90"), "7")


@pytest.mark.parametrize("name", ["order.placed", "order.*", "#"])
def test_an_event_is_found_by_its_type_or_a_pattern(eventbus, name):
    publish("order.placed", {"order": {"id": 1, "lines": [1, 2]}, "total": Decimal("1.50")})

    event = eventbus.assert_published(name, order={"id": 1}, total=Decimal("1.50"))

    assert event.payload["order"]["lines"] == [1, 2]


def test_a_field_whose_name_is_a_keyword_is_given_in_the_payload(eventbus):
    publish("order.placed", {"count": 2, "key": "a"})

    eventbus.assert_published("order.placed", payload={"count": 2, "key": "a"})
    eventbus.assert_not_published("order.placed", payload={"count": 3})


def test_a_failure_lists_what_was_published(eventbus):
    publish(OrderPlaced(order_id=2), key="k2")
    publish("order.paid", {"note": "x" * 1000})

    with pytest.raises(AssertionError) as failure:
        eventbus.assert_published(OrderPlaced, order_id=1, key="k1")

    first, _, placed, paid = str(failure.value).replace("published. ", "published.\n").split("\n")
    assert first == "No order.placed with order_id=1, key='k1' published."
    assert placed == """  order.placed {"order_id": 2, "total": "0", "lines": {}} key='k2'"""
    assert paid.startswith("  order.paid {")
    assert len(paid) < 400


def test_a_failure_says_that_nothing_was_published(eventbus):
    with pytest.raises(AssertionError, match=r"No order.placed published. Nothing was published."):
        eventbus.assert_published("order.placed")


def test_how_often_is_asked_with_count(eventbus):
    publish_many([OrderPlaced(order_id=1), OrderPlaced(order_id=2)])

    eventbus.assert_published(OrderPlaced, count=2)
    eventbus.assert_published(OrderPlaced, order_id=2, count=1)
    with pytest.raises(
        AssertionError, match=r"2 order.placed published; 3 expected. Published events:"
    ):
        eventbus.assert_published(OrderPlaced, count=3)


def test_what_was_not_published_is_asserted_too(eventbus):
    publish(OrderPlaced(order_id=1))

    eventbus.assert_not_published(OrderPlaced, order_id=2)
    with pytest.raises(
        AssertionError, match=r"order.placed with order_id=1 was published. Published events:"
    ):
        eventbus.assert_not_published(OrderPlaced, order_id=1)


def test_a_field_that_the_class_does_not_have_is_an_error_and_not_absent(eventbus):
    with pytest.raises(TypeError, match="OrderPlaced has no field 'ordr_id'"):
        eventbus.assert_not_published(OrderPlaced, ordr_id=1)


def test_published_is_what_was_published_and_not_what_is_sent_again(eventbus):
    @subscribe("order.placed", name="charge")
    def charge(event):
        raise RetryLater(after="7s") if event.meta.attempt == 1 else GiveUp

    publish("order.placed", {"n": 1})
    eventbus.drain()
    redrive([each.pk for each in eventbus.parked], by="me", using="default")

    assert [(each.type, each.payload) for each in eventbus.published] == [
        ("order.placed", {"n": 1})
    ]
    assert OutboxEvent.objects.count() == 3


def test_what_a_rolled_back_transaction_published_is_not_there(eventbus):
    with transaction.atomic():
        publish("order.placed")
        transaction.set_rollback(True)

    assert eventbus.published == []


# Delivering one event.


def test_an_event_is_delivered_to_every_subscription_that_matches(everywhere):
    subscribe(OrderPlaced, name="charge", queue="billing")(leave_effect)
    subscribe("order.*", name="audit")(leave_effect)
    subscribe("order.paid", name="other")(leave_effect)

    delivered = everywhere.deliver(OrderPlaced(order_id=1))

    assert delivered.outcomes == [Handled(), Handled()]
    assert delivered.by("charge") == [Handled()]
    assert set(Effect.objects.values_list("subscription", flat=True)) == {"charge", "audit"}
    assert InboxRecord.objects.filter(state="handled").count() == 2


def test_an_event_is_delivered_to_one_subscription_by_name_or_handler(eventbus):
    @subscribe("order.placed", name="charge", queue="billing")
    def charge(event):
        leave_effect(event)

    subscribe("order.*", name="audit")(leave_effect)

    eventbus.deliver("order.placed", {"order_id": 1}, subscription="audit")
    delivered = eventbus.deliver("order.placed", {"order_id": 1}, subscription=charge)

    assert delivered.by(charge) == [Handled()]
    assert list(Effect.objects.order_by("id").values_list("subscription", flat=True)) == [
        "audit",
        "charge",
    ]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (GiveUp("no"), Park),
        (Skip("no"), Skipped),
        (ValueError("no"), Retry),
        (SystemExit("no"), Retry),
    ],
)
def test_a_failure_is_an_outcome_and_raises_nothing(everywhere, error, outcome):
    @subscribe("order.placed", name="charge")
    def charge(event):
        Effect.objects.create(event_id=event.meta.id, subscription="charge")
        raise error

    delivered = everywhere.deliver("order.placed")

    assert [type(each) for each in delivered.outcomes] == [outcome]
    assert delivered.errors == [error]
    assert len(everywhere.parked) == (outcome is Park)
    assert not Effect.objects.exists()


def test_the_same_event_delivered_twice_is_a_duplicate(eventbus):
    subscribe("order.placed", name="charge")(leave_effect)
    publish(OrderPlaced(order_id=1))
    event = eventbus.assert_published(OrderPlaced)

    outcomes = eventbus.deliver(event).outcomes + eventbus.deliver(event).outcomes
    outcomes += eventbus.deliver(eventbus.published[0]).outcomes

    assert outcomes == [Handled(), *[Duplicate(state="handled", attempt=1)] * 2]
    assert Effect.objects.count() == 1


def test_a_debug_handler_is_reached(eventbus):
    heard = []
    subscribe("order.placed", name="charge", debug_handler=heard.append)(leave_effect)

    eventbus.deliver("order.placed", {"n": 1}, debug=True)

    assert [each.payload for each in heard] == [{"n": 1}]


def test_a_command_is_sent_handled_and_asserted_like_an_event(everywhere):
    handle_command("file.reprocess", name="reprocess", queue="files")(leave_effect)
    subscribe("#", name="audit", queue="audit")(leave_effect)

    send_command("file.reprocess", {"file": 1})
    assert everywhere.drain().by("reprocess") == [Handled()]
    delivered = everywhere.deliver("file.reprocess", {"file": 2})
    assert [each.subscription.name for each in delivered.settlements] == ["reprocess"]

    everywhere.assert_published("file.reprocess", file=1, count=1)


def test_an_event_that_could_not_be_published_is_not_delivered(eventbus):
    subscribe("order.placed", name="charge")(leave_effect)

    with pytest.raises(InvalidEvent):
        eventbus.deliver(OrderPlaced(order_id="seven"))


def test_nobody_to_deliver_to_is_an_error(eventbus):
    subscribe("order.placed", name="charge")(leave_effect)

    with pytest.raises(LookupError, match=r"No subscription matches 'order.paid'"):
        eventbus.deliver("order.paid")
    with pytest.raises(LookupError, match=r"no subscription 'pack'\. The subscriptions are charge"):
        eventbus.deliver("order.placed", subscription="pack")


# The whole way.


def test_drain_plays_retries_at_once_and_parks_in_the_end(everywhere):
    attempts = []

    @subscribe("order.placed", name="charge", retry=["5m", "1h"], tries=4)
    def charge(event):
        attempts.append(event.meta.attempt)
        raise ValueError("no")

    publish("order.placed")
    delivered = everywhere.drain()

    assert attempts == [1, 2, 3, 4]
    assert [type(each) for each in delivered.outcomes] == [Retry, Retry, Retry, Park]
    assert [each.error_type for each in everywhere.parked] == ["ValueError"]


def test_drain_plays_delays_odd_retries_and_deferrals_at_once(everywhere):
    raised = iter([RetryLater(after="7h"), TooEarly(until=timezone.now() + timedelta(days=2))])

    @subscribe("order.placed", name="charge")
    def charge(event):
        for error in raised:
            raise error
        leave_effect(event)

    publish("order.placed", delay="1d")
    delivered = everywhere.drain()

    assert delivered.outcomes[-1] == Handled()
    assert len(delivered.outcomes) == 3
    assert Effect.objects.count() == 1


def test_drain_keeps_the_order_of_an_ordered_subscription(everywhere):
    seen = []

    @subscribe("order.*", name="ordered", queue="lines", ordered=True, retry=["1m", "1m"])
    def handle(event):
        seen.append((event.payload["n"], event.meta.attempt))
        if event.payload["n"] == 1:
            raise ValueError("never")

    for number in (1, 2):
        publish("order.placed", {"n": number}, key=7)
    everywhere.drain()

    assert seen == [(1, 1), (1, 2), (1, 3), (2, 1)]
    assert [letter.kind for letter in everywhere.parked] == ["failed"]


def test_drain_follows_what_handlers_publish(everywhere):
    @subscribe("order.placed", name="charge", queue="billing")
    def charge(event):
        publish("order.paid", event.payload)

    subscribe("order.paid", name="ship", queue="shipping")(leave_effect)

    publish("order.placed", {"order_id": 1})
    everywhere.drain()

    paid = everywhere.assert_published("order.paid", order_id=1)
    placed = everywhere.assert_published("order.placed")
    assert paid.meta.causation_id == placed.meta.id
    assert Effect.objects.get().event_id == paid.meta.id


def test_drain_does_nothing_when_nothing_was_published(everywhere):
    subscribe("order.placed", name="charge")(leave_effect)

    assert everywhere.drain().outcomes == []


def test_a_redriven_dead_letter_heals_in_a_test(everywhere):
    is_mended = []

    @subscribe("order.placed", name="charge", retry=[])
    def charge(event):
        if not is_mended:
            raise ValueError("no")
        leave_effect(event)

    publish("order.placed")
    everywhere.drain()
    (letter,) = everywhere.parked
    is_mended.append(True)
    redrive([letter.pk], by="me", using="default")
    everywhere.drain()

    letter.refresh_from_db()
    assert letter.state == "healed"
    assert everywhere.parked == []


def test_an_endless_loop_ends_with_the_name_of_the_subscription(everywhere):
    @subscribe("order.placed", name="echo")
    def echo(event):
        publish("order.placed")

    publish("order.placed")

    with pytest.raises(NotQuiet, match="after 30 deliveries; the last went to echo"):
        everywhere.drain(limit=30)


def test_a_handler_that_is_always_too_early_ends_too(eventbus):
    @subscribe("order.placed", name="wait")
    def wait(event):
        raise TooEarly(until=timezone.now() + timedelta(hours=1))

    publish("order.placed")

    with pytest.raises(NotQuiet, match="raise TooEarly in every run"):
        eventbus.drain(limit=30)


def test_an_event_that_nobody_wants_or_that_is_held_does_not_keep_drain_busy(eventbus, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "UNROUTABLE": "hold"}
    subscribe("order.paid", name="charge")(leave_effect)
    publish("order.placed")

    eventbus.drain()

    eventbus.assert_published("order.placed")
    assert OutboxEvent.objects.get().state == "scheduled"


def test_commit_hooks_of_a_handler_run_after_it_and_once(everywhere):
    ran = []

    @subscribe("order.placed", name="charge")
    def charge(event):
        transaction.on_commit(lambda: transaction.on_commit(lambda: ran.append(len(ran))))
        ran.append("handler")

    @subscribe("order.placed", name="fail", retry=[])
    def fail(event):
        transaction.on_commit(lambda: ran.append("never"))
        raise ValueError("no")

    publish("order.placed")
    everywhere.drain()
    everywhere.drain()

    assert ran == ["handler", 1]


def test_a_commit_hook_of_the_test_itself_is_left_alone(eventbus):
    ran = []
    transaction.on_commit(lambda: ran.append("the test's own"))
    subscribe("order.placed", name="charge")(leave_effect)

    eventbus.deliver("order.placed")

    assert ran == []


def test_a_handler_that_swallows_a_database_error_fails_as_in_production(eventbus):
    @subscribe("order.placed", name="charge", retry=[])
    def charge(event):
        transaction.set_rollback(True)

    delivered = eventbus.deliver("order.placed")

    assert [type(each).__name__ for each in delivered.errors] == ["NotCommitted"]


def test_delivering_inside_a_transaction_of_the_test_is_refused(eventbus):
    subscribe("order.placed", name="charge")(leave_effect)

    with pytest.raises(RuntimeError, match=r"Call it after the block"), transaction.atomic():
        eventbus.drain()


@pytest.mark.postgres
def test_limits_of_a_transaction_do_not_outlast_it_in_a_test(eventbus):
    subscribe("order.placed", name="charge", timeout="5s")(leave_effect)
    publish("order.placed")

    eventbus.drain()

    for name in ("statement_timeout", "idle_in_transaction_session_timeout"):
        with connection.cursor() as cursor:
            cursor.execute(f"SHOW {name}")
            assert cursor.fetchone() == ("0",)


def test_it_works_in_a_test_whose_data_is_committed(transactional_db, opened):
    ran = []

    @subscribe("order.placed", name="charge")
    def charge(event):
        transaction.on_commit(lambda: ran.append("hook"))
        leave_effect(event)

    with opened() as bus:
        publish("order.placed")
        bus.drain()

    assert ran == ["hook"]
    assert Effect.objects.count() == 1


@pytest.mark.parametrize("url", ["amqp://user:hunter2@nowhere:1/", "database://"])
def test_no_broker_is_needed_whatever_the_settings_say(db, opened, settings, url):
    settings.EVENTBUS = {**settings.EVENTBUS, "BROKER_URL": url}
    subscribe("order.placed", name="charge")(leave_effect)

    with opened() as bus:
        publish("order.placed")
        assert bus.drain().outcomes == [Handled()]


# On a broker.


@pytest.mark.rabbitmq
def test_a_test_on_rabbitmq_has_names_of_its_own_and_leaves_none(
    db, opened, rabbitmq_url, settings
):
    settings.EVENTBUS = {**settings.EVENTBUS, "BROKER_USER": "nobody", "PARK_TO": "broker"}
    subscribe("order.placed", name="charge", queue="billing", retry=["5m"])(leave_effect)

    with opened(rabbitmq_url) as bus:
        namespace = settings.EVENTBUS["NAMESPACE"]
        publish("order.placed")
        bus.drain()
        queue = f"{namespace}.shop-tests.billing"
        names = [queue, f"{queue}.dlq", f"{queue}.retry.5m", f"{queue}.retry.30s"]
        assert all(exists(rabbitmq_url, name) for name in names)

    assert namespace.startswith("test-")
    assert not any(exists(rabbitmq_url, name) for name in names)


def exists(url: str, queue: str) -> bool:
    import pika

    with Amqp(url).channel() as channel:
        try:
            channel.queue_declare(queue, passive=True)
        except pika.exceptions.ChannelClosedByBroker:
            return False
        return True


@pytest.mark.rabbitmq
@pytest.mark.parametrize(
    "changes",
    [
        {"NAMES": {"queue": "legacy.{name}"}},
        {"NAMES": {"events_exchange": "legacy"}},
        {"ROUTES": {"order.#": "legacy"}},
    ],
)
def test_names_that_a_test_would_share_with_a_live_bus_are_refused(
    db, opened, rabbitmq_url, settings, changes
):
    settings.EVENTBUS = {**settings.EVENTBUS, **changes}
    subscribe("order.placed", name="charge", queue="billing")(leave_effect)

    with opened(rabbitmq_url) as bus, pytest.raises(BadSetting, match="is shared with other tests"):
        bus.drain()


@pytest.mark.rabbitmq
def test_a_namespace_that_a_test_replaces_is_refused(db, opened, rabbitmq_url, settings):
    subscribe("order.placed", name="charge")(leave_effect)

    with opened(rabbitmq_url) as bus:
        settings.EVENTBUS = {**settings.EVENTBUS, "NAMESPACE": "live"}
        with pytest.raises(BadSetting, match="was changed by the test"):
            bus.drain()


def test_the_broker_is_chosen_by_option_then_by_variable(monkeypatch):
    monkeypatch.setattr(broker_choice, "_chosen", "")
    assert broker_choice.chosen() == "database://"

    monkeypatch.setenv("EVENTBUS_TEST_BROKER", "amqp://variable/")
    assert broker_choice.chosen() == "amqp://variable/"

    broker_choice.choose("amqp://option/")
    assert broker_choice.chosen() == "amqp://option/"


# Django's test cases.


@pytest.mark.usefixtures("no_subscriptions")
class MixinTests(EventBusMixin, TestCase):
    def test_the_bus_is_an_attribute_of_a_test_case(self):
        @subscribe("order.placed", name="charge")
        def charge(event):
            leave_effect(event)

        publish("order.placed", {"order_id": 1})
        self.eventbus.drain()

        self.eventbus.assert_published("order.placed", order_id=1)
        assert Effect.objects.count() == 1


@pytest.mark.usefixtures("no_subscriptions")
class CommittedMixinTests(EventBusMixin, TransactionTestCase):
    databases = "__all__"

    def test_the_bus_is_an_attribute_of_a_transaction_test_case(self):
        subscribe("order.placed", name="charge")(leave_effect)

        publish("order.placed")

        assert self.eventbus.drain().outcomes == [Handled()]
