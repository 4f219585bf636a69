"""Deliveries that reach no subscription, outages, and the ack that comes last."""

from __future__ import annotations

import pytest

from django_eventbus import publish, signals
from django_eventbus.conf import conf
from django_eventbus.consumer.consumer import Consumer
from django_eventbus.events.message import ORIGINAL_QUEUE, REDRIVEN_COUNT, RETRY_COUNT, SUBSCRIPTION
from django_eventbus.exceptions import BrokerUnavailable, DatabaseUnavailable
from django_eventbus.models import DeadLetter, InboxRecord, QueuedMessage
from django_eventbus.redrive.letters import redrive
from django_eventbus.subscriptions.outcomes import Duplicate, Handled, Park, Retry, Skipped
from django_eventbus.transports.contract import Confirmed, Refused

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]


def with_settings(settings, **changes):
    settings.EVENTBUS = {**settings.EVENTBUS, **changes}


#: What the broker adds when a message leaves a tier.
EXPIRED = [{"queue": "their.queue.retry.1s", "reason": "expired", "count": 1}]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"body": b"\xff\xfe not json"}, "the body is not JSON"),
        ({"body": b""}, "the body is not JSON"),
        ({"body": b'{"a": NaN}'}, "the body is not JSON"),
        ({"body": b"[" * 100_000 + b"]" * 100_000}, "nested too deeply"),
        ({"body": b"9" * 5000}, "the body is not JSON"),
        ({"id": ""}, "no message_id"),
        ({"type": ""}, "no usable type"),
        ({"content_type": "image/png"}, "the content type is image/png"),
    ],
)
def test_what_cannot_be_decoded_is_parked_once_with_its_exact_bytes(bus, changes, reason):
    bus.subscribe("#")(lambda event: None)
    message = bus.put(**changes)
    bus.put(message)

    bus.consume()
    bus.consume()

    assert bytes(bus.letter.body) == message.body
    assert bus.letter.kind == "undecodable"
    assert reason in bus.letter.error
    assert not QueuedMessage.objects.exists()


def test_the_message_after_an_undecodable_one_is_handled(bus):
    bus.subscribe("#")(lambda event: None)
    bus.put(body=b"{")
    bus.put()

    bus.consume()

    assert bus.consume() == [Handled()]


def test_an_undecodable_message_that_can_be_read_after_a_re_drive_heals(bus, settings):
    bus.subscribe("#", name="all")(lambda event: None)
    with_settings(settings, MAX_BODY_BYTES=10)
    bus.put(body=b'{"long": "too long"}')
    bus.consume()
    with_settings(settings, MAX_BODY_BYTES=1000)

    redrive([bus.letter.pk], by="tester", using="default")
    bus.drain()

    assert bus.letter.state == "healed"
    assert InboxRecord.objects.get().state == "handled"


def test_a_message_without_an_id_gets_one_that_its_re_drive_carries(bus):
    ran = []
    bus.subscribe("#")(lambda event: ran.append(event.meta.id))
    bus.put(id="")
    bus.consume()

    redrive([bus.letter.pk], by="tester", using="default")
    bus.drain()

    assert ran == [bus.letter.message_id]
    assert bus.letter.message_id.startswith("sha256:")
    assert bus.letter.state == "healed"


def test_what_nothing_subscribes_to_goes_through_the_tiers_and_is_parked(bus, settings):
    with_settings(settings, RETRY_DELAYS=["1s", "2s"])
    bus.subscribe("order.*")(lambda event: None)
    bus.put(type="invoice.sent")

    outcomes = []
    for _ in range(3):
        bus.pass_time()
        outcomes += bus.consume()

    assert [type(each) for each in outcomes] == [Retry, Retry, Park]
    assert (bus.letter.kind, bus.letter.subscription) == ("unmatched", "")
    assert "no subscription on" in bus.letter.error


def test_a_rolling_deploy_heals_what_was_unmatched(bus):
    bus.subscribe("order.*")(lambda event: None)
    bus.put(type="invoice.sent")
    bus.consume()

    bus.subscribe("invoice.*")(lambda event: None)
    bus.pass_time()

    assert bus.consume() == [Handled()]


def test_unmatched_is_ignored_if_the_settings_say_so(bus, settings):
    with_settings(settings, UNMATCHED="ignore")
    bus.subscribe("order.*")(lambda event: None)
    bus.put(type="invoice.sent")

    assert isinstance(bus.consume()[0], Skipped)
    assert not DeadLetter.objects.exists()


@pytest.mark.parametrize("given", [{"EXCHANGE_TYPES": {"events": "fanout"}}, {"TOPOLOGY": "check"}])
def test_where_others_decide_what_arrives_the_unmatched_is_ignored_by_default(bus, settings, given):
    with_settings(settings, **given)
    bus.subscribe("order.*")(lambda event: None)
    bus.put(type="invoice.sent")

    assert isinstance(bus.consume()[0], Skipped)
    assert not DeadLetter.objects.exists()


def test_a_copy_of_our_own_is_parked_even_where_the_unmatched_is_ignored(bus, settings):
    with_settings(settings, UNMATCHED="ignore", RETRY_DELAYS=[], TRIES=1)
    bus.subscribe("order.*")(lambda event: None)
    bus.put(headers={SUBSCRIPTION: "gone", ORIGINAL_QUEUE: conf.queue()})

    assert isinstance(bus.consume()[0], Park)
    assert bus.letter.subscription == "gone"


def test_a_header_with_another_queue_makes_no_message_vanish(bus):
    ran = []
    bus.subscribe("#", name="all")(ran.append)
    bus.put(headers={ORIGINAL_QUEUE: "their.queue"})
    bus.put(headers={ORIGINAL_QUEUE: "their.queue", "x-death": EXPIRED}, body=b"not JSON")

    bus.consume()
    bus.consume()

    assert [event.type for event in ran] == ["order.placed"]
    assert DeadLetter.objects.get().kind == "undecodable"


def test_a_copy_for_another_queue_is_skipped_where_tiers_share_their_way_back(bus, settings):
    with_settings(settings, NAMES={"tier_return_exchange": "{namespace}.events"})
    ran, counted = [], []
    bus.subscribe("#", name="all")(lambda event: ran.append(event))
    theirs = {ORIGINAL_QUEUE: "their.queue", "x-death": EXPIRED}
    bus.put(headers={**theirs, SUBSCRIPTION: "theirs", RETRY_COUNT: 1})
    bus.put(headers=theirs, body=b"not JSON")

    def count(sender, reason, **kwargs):
        counted.append(reason)

    signals.event_skipped.connect(count)
    bus.consume()
    bus.consume()

    assert (ran, counted) == ([], ["the message is for their.queue"] * 2)
    assert not DeadLetter.objects.exists()
    assert not InboxRecord.objects.exists()


def test_an_unmatched_re_drive_that_finds_its_subscription_heals(bus, settings):
    with_settings(settings, RETRY_DELAYS=[], TRIES=1)
    bus.subscribe("order.*")(lambda event: None)
    bus.put(type="invoice.sent")
    bus.consume()
    bus.subscribe("invoice.*", name="invoices")(lambda event: None)

    redrive([bus.letter.pk], by="tester", using="default")
    bus.drain()

    assert bus.letter.state == "healed"


def test_a_copy_for_a_subscription_that_is_gone_is_parked_under_its_name(bus, settings):
    with_settings(settings, TRIES=1)
    bus.subscribe("order.*", name="present")(lambda event: None)

    bus.put(headers={SUBSCRIPTION: "gone"})
    bus.consume()

    assert (bus.letter.subscription, bus.letter.kind) == ("gone", "unmatched")
    assert "this project has no subscription 'gone'" in bus.letter.error


def test_an_unknown_version_is_retried_and_an_invalid_payload_parked_at_once(bus):
    from django_eventbus import Event

    class Counted(Event, type="counted"):
        number: int

    bus.subscribe(Counted, name="counting")(lambda event: None)
    bus.put(type="counted", body=b'{"number": 1}', headers={"eventbus-version": 2})
    bus.put(type="counted", body=b'{"number": "one"}')

    assert bus.consume() == [Retry(delay=30.0)]
    assert isinstance(bus.consume()[0], Park)
    assert bus.letter.kind == "invalid"
    assert "$.number" in bus.letter.error


class RefusingPublisher:
    """A publisher whose broker is away."""

    def publish(self, batch):
        return [Refused(reason="full") for _ in batch]

    def close(self):
        pass


def test_a_retry_that_is_not_confirmed_is_not_acked(bus):
    @bus.subscribe("order.*")
    def failing(event):
        raise ValueError("no")

    bus.put()
    delivery = bus.receive()
    consumer = Consumer(RefusingPublisher())

    with pytest.raises(BrokerUnavailable):
        consumer.consume(delivery)
    bus.pass_time()

    assert bus.consume() == [Duplicate(state="retrying", attempt=1, delay=30.0)]
    waiting = QueuedMessage.objects.get()
    assert waiting.headers[RETRY_COUNT] == 1


class KeepingPublisher(RefusingPublisher):
    """Takes everything, and shows it."""

    def __init__(self):
        self.sent = []

    def publish(self, batch):
        self.sent.extend(batch)
        return [Confirmed()] * len(batch)


def dlq_of(queue):
    return f"{queue}.dlq"


class HttpError(Exception):
    status_code = 422


def test_what_is_parked_to_the_broker_carries_a_status_and_a_bounded_error(bus, settings):
    with_settings(settings, PARK_TO="broker")
    publisher = KeepingPublisher()

    @bus.subscribe("order.*", tries=1)
    def failing(event):
        raise HttpError("\x00" + "é" * 10_000)

    bus.put()
    Consumer(publisher, dlq_of).consume(bus.receive())

    (sent,) = publisher.sent
    assert sent.address.queue == f"{conf.queue()}.dlq"
    assert sent.message.headers["x-final-status-code"] == 422
    error = sent.message.headers["x-final-error"]
    assert error.startswith("HttpError: \ufffdéé")
    assert len(error) == 500
    assert InboxRecord.objects.get().state == "parked"
    assert not DeadLetter.objects.exists()


def test_what_the_broker_does_not_confirm_is_not_recorded_as_parked(bus, settings):
    with_settings(settings, PARK_TO="broker")

    @bus.subscribe("order.*", tries=1)
    def failing(event):
        raise ValueError("no")

    bus.put()

    with pytest.raises(BrokerUnavailable):
        Consumer(RefusingPublisher(), dlq_of).consume(bus.receive())

    assert not InboxRecord.objects.exists()
    assert QueuedMessage.objects.count() == 1


def test_on_the_database_transport_parking_to_the_broker_is_the_same(bus, settings):
    with_settings(settings, PARK_TO="broker")

    @bus.subscribe("order.*", tries=1)
    def failing(event):
        raise ValueError("no")

    bus.put()
    Consumer(bus.publisher, bus.transport.dead_letter_queue).consume(bus.receive())

    assert bus.letter.kind == "failed"


class GoneDelivery:
    """A delivery whose broker does not even take it back."""

    def __init__(self, delivery):
        self.message, self.queue = delivery.message, delivery.queue
        self.is_redelivered = False

    def release(self, after=0):
        raise DatabaseUnavailable("gone")


def test_a_delivery_that_cannot_be_returned_comes_back_by_itself(bus):
    @bus.subscribe("order.*")
    def failing(event):
        raise ValueError("no")

    bus.put()
    consumer = Consumer(RefusingPublisher())

    with pytest.raises(BrokerUnavailable):
        consumer.consume(GoneDelivery(bus.receive()))


def test_every_outcome_is_announced_and_a_receiver_that_raises_changes_nothing(bus):
    heard = []

    def receiver(signal, meta, **kwargs):
        heard.append(meta.subscription)
        raise RuntimeError("a receiver's own trouble")

    bus.subscribe("order.*", name="billing")(lambda event: None)
    signals.event_handled.connect(receiver)
    try:
        bus.put()
        outcomes = bus.consume()
    finally:
        signals.event_handled.disconnect(receiver)

    assert outcomes == [Handled()]
    assert heard == ["billing"]


def test_every_outcome_says_how_long_it_took_and_how_large_the_message_is(bus):
    heard = []

    def receiver(signal, seconds, size, **kwargs):
        heard.append((signal, seconds > 0, size))

    @bus.subscribe("order.*", name="billing")
    def fail_once(event):
        if event.meta.attempt == 1:
            raise ValueError("not yet")

    told = (signals.event_handled, signals.event_retried, signals.event_parked)
    for each in told:
        each.connect(receiver)
    try:
        bus.put(body=b'"ten bytes"')
        bus.drain()
        bus.put(body=b"\xff")
        bus.consume()
    finally:
        for each in told:
            each.disconnect(receiver)

    assert heard == [
        (signals.event_retried, True, 11),
        (signals.event_handled, True, 11),
        (signals.event_parked, False, 1),
    ]


def test_a_subscription_by_the_routing_key_matches_a_foreign_type(bus):
    ran = []
    bus.subscribe("orders.#")(lambda event: ran.append(event.type))

    bus.put(type="OrderPlaced", routing_key="orders.placed")
    bus.consume()

    assert ran == ["OrderPlaced"]


def test_events_published_in_a_handler_name_their_cause(bus):
    metas = []

    @bus.subscribe("order.placed", name="first")
    def first(event):
        publish("order.billed", {})

    bus.subscribe("order.billed", name="second")(lambda event: metas.append(event.meta))
    cause = str(publish("order.placed", {}, correlation_id="trail"))
    bus.drain()

    assert (metas[0].causation_id, metas[0].correlation_id) == (cause, "trail")
    assert metas[0].source == conf.service


@pytest.mark.parametrize(
    ("name", "event_type"), [("refund", "order.placed"), ("ship", "invoice.sent")]
)
def test_a_header_gives_no_message_to_a_subscription_that_would_not_receive_it(
    bus, settings, name, event_type
):
    with_settings(settings, RETRY_DELAYS=[], TRIES=1)
    ran = []
    bus.subscribe("order.*", queue="money", name="refund")(lambda event: ran.append("refund"))
    bus.subscribe("order.*", name="ship")(lambda event: ran.append("ship"))
    bus.put(type=event_type, headers={SUBSCRIPTION: name})

    bus.consume()

    letter = DeadLetter.objects.get()
    assert (ran, letter.kind, letter.subscription) == ([], "unmatched", name)


@pytest.mark.parametrize("written", [2**30, 5, 1])
def test_a_round_that_was_made_up_can_still_be_re_driven(bus, settings, written):
    with_settings(settings, REDRIVE={"TRIES": 1})

    @bus.subscribe("order.*", name="ship")
    def fail(event):
        raise ValueError("no stock")

    bus.put(headers={REDRIVEN_COUNT: written, SUBSCRIPTION: "ship"})
    bus.consume()
    letter = DeadLetter.objects.get()
    assert letter.round == 1

    redrive([letter.pk], by="ada", using="default")
    bus.drain()

    letter.refresh_from_db()
    assert (letter.round, letter.state) == (2, "open")
