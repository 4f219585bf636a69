"""Ordered subscriptions: one message at a time, retried where it is."""

from __future__ import annotations

import threading
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.utils import timezone

from django_eventbus import GiveUp, RetryLater, TooEarly, publish, signals, subscribe
from django_eventbus.conf import conf
from django_eventbus.consumer.ordered import OrderedConsumer
from django_eventbus.events.message import RETRY_COUNT
from django_eventbus.models import Attempt, DeadLetter, InboxRecord, OutboxEvent, QueuedMessage
from django_eventbus.redrive.letters import redrive
from django_eventbus.subscriptions.outcomes import Defer, Duplicate, Handled, Park, Retry
from django_eventbus.subscriptions.queue_specs import queue_specs
from django_eventbus.subscriptions.subscription import registry
from django_eventbus.transports.rabbitmq.topology import resources

pytestmark = pytest.mark.both_databases


class Script:
    """A handler that fails as it is told, and remembers what it was given."""

    def __init__(self):
        self.seen = []
        self.errors = {}

    def __call__(self, event):
        self.seen.append((event.payload, event.meta.attempt))
        if errors := self.errors.get(event.payload):
            raise errors.pop(0)

    @property
    def payloads(self):
        return [payload for payload, _ in self.seen]


@pytest.fixture
def script(bus):
    script = Script()
    bus.subscribe("order.*", queue="o", name="o", ordered=True, retry=["1s", "2s"])(script)
    return script


def publish_all(bus, *payloads, key="k"):
    for payload in payloads:
        publish("order.changed", payload, key=key)
    bus.relay()


class Stop(threading.Event):
    """Time that passes as it has to, written down; told to stop after so many waits."""

    def __init__(self, bus, waits=1000):
        super().__init__()
        self.bus, self.left, self.waited = bus, waits, []

    def wait(self, timeout=None):
        self.waited.append(timeout)
        self.left -= 1
        if self.left < 0:
            self.set()
        else:
            self.bus.pass_time()
        return self.is_set()


@pytest.fixture
def stop(bus):
    return Stop(bus)


def consume(bus, stop, queue="o"):
    """Consume the next delivery as consume_events does; return the outcomes."""
    consumer = OrderedConsumer(bus.publisher, lambda queue: None, stop)
    delivery = bus.receive(queue)
    assert delivery, "nothing is due"
    return [settlement.outcome for settlement in consumer.consume(delivery)]


def test_a_failed_message_is_tried_again_before_the_next_is_looked_at(bus, script, stop):
    publish_all(bus, 1, 2)
    script.errors[1] = [ValueError(), ValueError()]

    outcomes = consume(bus, stop) + consume(bus, stop)

    assert script.seen == [(1, 1), (1, 2), (1, 3), (2, 1)]
    assert stop.waited == [1.0, 2.0]
    assert outcomes[2:] == [Handled(), Handled()]
    assert not QueuedMessage.objects.exists()


def test_nothing_is_sent_to_a_tier_or_to_the_outbox(bus, script):
    publish_all(bus, 1)
    script.errors[1] = [RetryLater(after="7s")]
    row = QueuedMessage.objects.get()

    assert bus.consume("o") == [Retry(delay=7.0, by_tier=False)]

    assert QueuedMessage.objects.get().pk == row.pk
    assert OutboxEvent.objects.exclude(state="published").count() == 0


def test_after_the_last_try_it_is_parked_and_the_next_goes_on(bus, script, stop):
    publish_all(bus, 1, 2)
    script.errors[1] = [ValueError(), ValueError(), ValueError()]

    outcomes = consume(bus, stop)

    assert isinstance(outcomes[-1], Park)
    assert Attempt.objects.count() == 3
    assert bus.letter.attempts == 3
    assert consume(bus, stop) == [Handled()]


def test_a_given_up_message_is_parked_at_once(bus, script, stop):
    publish_all(bus, 1, 2)
    script.errors[1] = [GiveUp()]

    assert isinstance(consume(bus, stop)[0], Park)
    assert consume(bus, stop) == [Handled()]
    assert stop.waited == []


def test_the_block_is_bounded_whatever_the_delays_say(bus, settings, stop):
    settings.EVENTBUS = {**settings.EVENTBUS, "ORDERED_BLOCK": "9m"}
    bus.subscribe("order.*", queue="o", name="o", ordered=True, retry=["1s", "9m"])(fail)
    publish_all(bus, 1)

    outcomes = consume(bus, stop)

    assert [type(each) for each in outcomes] == [Retry, Park]
    assert bus.letter.attempts == 2


def test_the_budget_of_the_subscription_counts_if_it_is_shorter(bus, script):
    subscribe("a", name="long", ordered=True, retry_for="1h")(fail)
    subscribe("a", name="short", ordered=True, retry_for="1m")(fail)

    assert [registry.named(name).policy.retry_for for name in ("long", "short")] == [600.0, 60.0]


def fail(event):
    raise ValueError("told to fail")


def test_sigterm_ends_the_wait_and_the_next_process_goes_on_where_it_was(bus, script):
    publish_all(bus, 1, 2)
    script.errors[1] = [ValueError(), ValueError()]

    assert consume(bus, Stop(bus, waits=1)) == [Retry(delay=1.0), Retry(delay=2.0)]
    come_again()
    stop = Stop(bus)
    outcomes = consume(bus, stop)

    assert isinstance(outcomes[0], Duplicate)
    assert (outcomes[0].state, outcomes[0].attempt) == ("retrying", 2)
    assert 0 < stop.waited[0] <= 2.0
    assert outcomes[1:] == [Handled()]
    assert script.seen == [(1, 1), (1, 2), (1, 3)]
    assert list(Attempt.objects.order_by("pk").values_list("attempt", flat=True)) == [1, 2]


def come_again():
    """Let the lease of what was received run out."""
    QueuedMessage.objects.update(available_at=timezone.now())


def test_signals_and_hooks_are_told_of_each_attempt_once(bus, stop):
    told = []

    def on_retry(error, event):
        told.append(event.meta.attempt)

    def hear(meta, **kwargs):
        told.append(f"signal {meta.attempt}")

    signals.event_retried.connect(hear)
    try:
        options = {"ordered": True, "retry": ["1s", "1s"], "on_retry": on_retry}
        bus.subscribe("order.*", queue="o", name="o", **options)(fail)
        publish_all(bus, 1)
        consume(bus, stop)
    finally:
        signals.event_retried.disconnect(hear)

    assert told == ["signal 1", 1, "signal 2", 2]


def test_too_early_is_waited_for_in_place_without_an_attempt_counted(bus, script, stop):
    publish_all(bus, 1, 2)
    script.errors[1] = [TooEarly(until=timezone.now() + timedelta(minutes=5))]

    outcomes = consume(bus, stop) + consume(bus, stop)

    assert isinstance(outcomes[0], Defer)
    assert outcomes[1:] == [Handled(), Handled()]
    assert script.seen == [(1, 1), (1, 1), (2, 1)]
    assert 299 < stop.waited[0] <= 300
    assert OutboxEvent.objects.exclude(state="published").count() == 0


def test_what_wants_to_be_put_off_for_longer_than_the_block_is_parked(bus, script, stop):
    publish_all(bus, 1)
    script.errors[1] = [TooEarly(until=timezone.now() + timedelta(minutes=11))]

    assert isinstance(consume(bus, stop)[0], Park)

    assert bus.letter.kind == "too_early"


def test_a_message_that_nothing_matches_waits_in_place_and_is_parked_in_the_end(bus, script, stop):
    bus.put(queue="o", type="invoice.sent")
    publish_all(bus, 2)

    outcomes = consume(bus, stop)

    assert [type(each) for each in outcomes] == [Retry, Retry, Park]
    assert stop.waited == [1.0, 2.0]
    assert bus.letter.kind == "unmatched"
    assert consume(bus, stop) == [Handled()]


def test_a_re_drive_comes_after_what_has_arrived_meanwhile(bus, script, stop):
    publish_all(bus, 1)
    script.errors[1] = [GiveUp()]
    consume(bus, stop)
    publish_all(bus, 2)
    redrive([bus.letter.pk], by="ada", using="default")
    bus.relay()
    publish_all(bus, 3)

    assert [consume(bus, stop) for _ in range(3)] == [[Handled()]] * 3

    assert script.payloads == [1, 2, 1, 3]
    assert bus.letter.state == DeadLetter.State.HEALED


def test_a_second_copy_of_a_message_that_is_done_is_a_duplicate(bus, script, stop):
    publish_all(bus, 1)
    message = QueuedMessage.objects.get().message()
    bus.put(message, queue="o")

    assert consume(bus, stop) == [Handled()]
    assert [type(each) for each in consume(bus, stop)] == [Duplicate]


def test_messages_that_are_not_ordered_are_retried_through_tiers_as_ever(bus, stop):
    bus.subscribe("order.*", queue="u", name="u", retry=["1s"])(fail)
    publish_all(bus, 1)

    assert bus.consume("u") == [Retry(delay=1.0)]

    assert QueuedMessage.objects.get().headers[RETRY_COUNT] == 1


def test_an_ordered_queue_is_declared_with_a_single_active_consumer(bus, script):
    bus.subscribe("order.*", queue="u", name="u")(fail)

    arguments = {
        resource.name: resource.arguments.get("x-single-active-consumer")
        for spec in queue_specs()
        for resource in resources.resources(spec)
        if isinstance(resource, resources.QueueResource)
    }

    assert arguments.pop(conf.queue("o")) is True
    assert set(arguments.values()) == {None}


def test_a_burst_works_off_ordered_and_other_queues_and_ends(bus, script):
    bus.subscribe("order.*", queue="u", name="u")(lambda event: None)
    bus.subscribe("order.*", queue="p", name="p", ordered=True)(lambda event: None)
    publish_all(bus, 1, 2, 3)

    call_command("consume_events", "--burst", "--with-relay", stdout=StringIO())

    assert script.payloads == [1, 2, 3]
    assert InboxRecord.objects.filter(state="handled").count() == 9


def test_a_limit_is_shared_by_all_queues(bus, script):
    bus.subscribe("order.*", queue="p", name="p", ordered=True)(script)
    publish_all(bus, 1, 2, 3)

    call_command("consume_events", "--max-messages", "2", stdout=StringIO())

    assert len(script.seen) == 2
