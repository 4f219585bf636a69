"""Claim, publish, confirm, mark: every receipt has its row."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone

from django_eventbus import publish, publish_many, signals
from django_eventbus.events.message import Message
from django_eventbus.exceptions import BrokerUnavailable
from django_eventbus.models import OutboxEvent, QueuedMessage, RelayLease
from django_eventbus.outbox import relay as relay_module
from django_eventbus.outbox.outbox_rows import write_addressed_row
from django_eventbus.outbox.relay import Relay
from django_eventbus.transports.contract import Confirmed, Refused, Rejected, Unroutable
from tests.support.helpers import eventually
from tests.support.interludes import interlude

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]


class ScriptedBatch:
    """Keeps what publish() returned or raised until somebody asks."""

    def __init__(self, publisher, batch):
        self.publisher, self.batch, self.error = publisher, batch, None

    def send(self):
        try:
            self.answers = self.publisher.publish(self.batch) if self.batch else []
        except BrokerUnavailable as error:
            self.error = error

    def receipts(self):
        if self.error:
            raise self.error
        return self.answers


class ScriptedPublisher:
    """Answers each message as told by its type's last word."""

    answers = {
        "ok": Confirmed(),
        "lost": Unroutable(),
        "full": Refused(reason="the queue is full"),
        "broken": Rejected(reason="the header table is too large"),
    }

    def __init__(self):
        self.sent = []
        self.batches = []

    def open(self):
        pass

    def prepare(self, batch):
        return ScriptedBatch(self, batch)

    def publish(self, batch):
        self.batches.append(len(batch))
        self.sent += [each.message.type for each in batch]
        return [self.answers[each.message.type.rpartition(".")[2]] for each in batch]

    def close(self):
        self.closed = True


class DeadPublisher(ScriptedPublisher):
    def publish(self, batch):
        raise BrokerUnavailable("no confirm in time")


def states():
    return list(OutboxEvent.objects.order_by("id").values_list("state", flat=True))


def test_a_rolled_back_event_is_never_relayed(bus):
    with transaction.atomic():
        publish("order.placed", {})
        transaction.set_rollback(True)

    assert bus.relay() == 0
    assert not OutboxEvent.objects.exists()


def test_every_receipt_has_a_row_outcome(db):
    for end in ("ok", "lost", "full", "broken"):
        publish(f"row.{end}", {})

    relayed = Relay(ScriptedPublisher(), "default").relay_once()

    assert relayed == 4
    assert states() == ["published", "unroutable", "scheduled", "failed"]
    assert list(OutboxEvent.objects.order_by("id").values_list("error", flat=True)) == [
        "",
        "no queue is bound to receive it",
        "the queue is full",
        "the header table is too large",
    ]


def test_an_outage_leaves_every_row_ready(db):
    publish_many([("row.ok", {})] * 3)

    with pytest.raises(BrokerUnavailable):
        Relay(DeadPublisher(), "default").relay_once()

    assert states() == ["ready"] * 3


def test_rows_go_in_the_order_of_their_ids_and_in_batches(db):
    publish_many([(f"row{number}.ok", {}) for number in range(5)])
    publisher = ScriptedPublisher()
    relay = Relay(publisher, "default", batch_size=2)

    while relay.relay_once():
        pass

    assert publisher.sent == [f"row{number}.ok" for number in range(5)]
    assert publisher.batches == [2, 2, 1]
    assert states() == ["published"] * 5


@pytest.mark.postgres
def test_a_transaction_carries_only_so_many_batches(db):
    publish_many([("row.ok", {})] * 23)

    assert Relay(ScriptedPublisher(), "default", batch_size=2).relay_once() == 20
    assert states() == ["published"] * 20 + ["ready"] * 3


@pytest.mark.postgres
def test_a_transaction_takes_no_further_batch_when_it_has_lasted_long(db, monkeypatch):
    monkeypatch.setattr("django_eventbus.outbox.relay._LONG", 0.2)
    publish_many([("row.ok", {})] * 20)

    class SlowPublisher(ScriptedPublisher):
        def publish(self, batch):
            until = time.monotonic() + 0.15
            eventually(lambda: time.monotonic() >= until)
            return super().publish(batch)

    assert 2 <= Relay(SlowPublisher(), "default", batch_size=2).relay_once() <= 6


@pytest.mark.postgres
def test_what_was_confirmed_is_marked_though_the_next_batch_was_not(db):
    publish_many([("row.ok", {})] * 6)

    class DyingPublisher(ScriptedPublisher):
        def publish(self, batch):
            if len(self.batches) == 2:
                raise BrokerUnavailable("no confirm in time")
            return super().publish(batch)

    with pytest.raises(BrokerUnavailable):
        Relay(DyingPublisher(), "default", batch_size=2).relay_once()

    assert states() == ["published"] * 4 + ["ready"] * 2


@pytest.mark.postgres
def test_a_batch_is_not_sent_before_the_last_one_is_accounted_for(db):
    publish_many([("row.ok", {})] * 4)
    story = []

    class RecordedBatch(ScriptedBatch):
        def send(self):
            story.append("sent")
            super().send()

        def receipts(self):
            story.append("accounted")
            return super().receipts()

    class RecordingPublisher(ScriptedPublisher):
        def prepare(self, batch):
            story.append(f"prepared {len(batch)}")
            return RecordedBatch(self, batch)

    Relay(RecordingPublisher(), "default", batch_size=2).relay_once()

    once = ["prepared 2", "sent"]
    assert story == [*once, "prepared 2", "accounted", "sent", "prepared 0", "accounted"]


@pytest.mark.postgres
def test_a_claimed_row_is_the_row_and_loads_what_it_was_read_without(db):
    publish("row.ok", {"n": 1}, key="k", headers={"é": "\u2028", "far": 2**62, "is": True})
    again = Message(id="1", type="a.b", body=b"")
    write_addressed_row(again, queue="q", subscription="s", due_at=None, using="default")
    whole = list(OutboxEvent.objects.order_by("id"))

    rows = OutboxEvent.objects.all().claim(0, after=0, limit=5)

    assert rows == whole
    assert rows[0].get_deferred_fields() == {"created_at", "due_at", "published_at", "error"}
    for row, same in zip(rows, whole, strict=True):
        assert row.message() == same.message()
        names = [field.attname for field in OutboxEvent._meta.concrete_fields]
        assert [getattr(row, name) for name in names] == [getattr(same, name) for name in names]
    assert OutboxEvent.objects.all().claim(0, after=whole[0].pk, limit=1) == whole[1:]


def test_a_scheduled_row_waits_until_it_is_due(bus):
    bus.subscribe("order.*")(lambda event: None)
    publish("order.placed", {}, delay="1h")

    assert bus.relay() == 0
    assert states() == ["scheduled"]
    OutboxEvent.objects.update(due_at=timezone.now() - timedelta(seconds=1))
    assert bus.relayer.has_ready_rows()
    assert bus.relay() == 1
    assert states() == ["published"]


def test_an_unroutable_row_can_be_published_again(bus):
    publish("order.placed", {})
    bus.relay()
    assert states() == ["unroutable"]
    bus.subscribe("order.*")(lambda event: None)

    OutboxEvent.objects.publish_again()

    assert bus.relay() == 1
    assert states() == ["published"]
    assert QueuedMessage.objects.count() == 1


@pytest.mark.parametrize(
    ("policy", "state"), [("flag", "unroutable"), ("hold", "scheduled"), ("ignore", "published")]
)
def test_what_no_queue_wants_is_settled_as_the_policy_says(bus, settings, policy, state):
    settings.EVENTBUS = {**settings.EVENTBUS, "UNROUTABLE": policy}
    heard = []

    def hear(row, **details):
        heard.append((row.type, details["policy"]))

    signals.event_unroutable.connect(hear)
    publish("order.placed", {})

    assert bus.relay() == 1

    assert states() == [state]
    assert heard == [("order.placed", policy)]


def test_a_held_row_goes_out_when_a_queue_is_bound(bus, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "UNROUTABLE": "hold"}
    publish("order.placed", {})
    bus.relay()
    bus.subscribe("order.*")(lambda event: None)
    bus.pass_time()

    assert bus.relay() == 1

    assert states() == ["published"]
    assert OutboxEvent.objects.get().error == ""


@pytest.mark.parametrize("policy", ["flag", "hold", "ignore"])
def test_an_addressed_row_that_no_queue_took_is_flagged_whatever_the_policy(db, settings, policy):
    settings.EVENTBUS = {**settings.EVENTBUS, "UNROUTABLE": policy}
    publish("row.lost", {})
    OutboxEvent.objects.update(queue="shop.gone")

    Relay(ScriptedPublisher(), "default").relay_once()

    assert states() == ["unroutable"]


@pytest.mark.parametrize(
    ("age", "error", "wait"),
    [(0, "", 5), (60, "", 5), (2, "full", 5), (12, "full", 12), (90, "full", 20)],
)
def test_a_row_is_held_the_longer_the_older_it_is(db, monkeypatch, age, error, wait):
    monkeypatch.setattr(relay_module, "HOLD_WAIT", (5.0, 20.0))
    publish("row.full", {})
    now = timezone.now()
    OutboxEvent.objects.update(created_at=now - timedelta(seconds=age), error=error)

    Relay(ScriptedPublisher(), "default").relay_once()

    held = (OutboxEvent.objects.get().due_at - now).total_seconds()
    assert wait <= held < wait + 3


def test_each_receipt_is_announced(db):
    heard = []
    receivers = {
        signals.event_published: lambda row, **kwargs: heard.append(("published", row.type)),
        signals.event_unroutable: lambda row, **kwargs: heard.append(("unroutable", row.type)),
        signals.event_failed: lambda row, reason, **kwargs: heard.append((reason, row.type)),
    }
    for signal, receiver in receivers.items():
        signal.connect(receiver)
    for end in ("ok", "lost", "broken"):
        publish(f"row.{end}", {})

    Relay(ScriptedPublisher(), "default").relay_once()

    assert heard == [
        ("published", "row.ok"),
        ("unroutable", "row.lost"),
        ("the header table is too large", "row.broken"),
    ]


def test_rows_that_the_broker_refuses_are_one_outage_until_all_of_them_have_left(db, monkeypatch):
    monkeypatch.setattr(relay_module, "HOLD_WAIT", (0.001, 0.001))
    heard = []

    def hear(kind, over, **kwargs):
        heard.append((kind, over))

    signals.outage.connect(hear)
    publisher = ScriptedPublisher()
    relay = Relay(publisher, "default")
    publish_many([("row.full", {}), ("row.ok", {}), ("row.full", {})])

    for _ in range(3):
        OutboxEvent.objects.filter(state="scheduled").update(due_at=timezone.now())
        relay.relay_once()
        # Others that go out do not end it.
        publish("row.ok", {})
    assert heard == [("refused", False)]

    publisher.answers = {**publisher.answers, "full": Confirmed()}
    OutboxEvent.objects.filter(state="scheduled").update(due_at=timezone.now())
    relay.relay_once()
    assert set(states()) == {"published"}
    assert heard == [("refused", False), ("refused", True)]


def test_what_is_held_for_want_of_a_queue_is_no_outage_and_logged_once(db, settings, caplog):
    settings.EVENTBUS = {**settings.EVENTBUS, "UNROUTABLE": "hold"}
    relay = Relay(ScriptedPublisher(), "default")
    publish("row.lost", {})

    for _ in range(3):
        OutboxEvent.objects.filter(state="scheduled").update(due_at=timezone.now())
        relay.relay_once()

    assert caplog.text.count("No queue is bound") == 1
    assert "Outage" not in caplog.text


def test_shards_are_all_relayed_and_a_key_stays_in_its_shard(db, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "SHARDS": 4}
    for number in range(40):
        publish("row.ok", {}, key=number % 10)

    assert Relay(ScriptedPublisher(), "default").relay_once() == 40

    shards = OutboxEvent.objects.values_list("key", "shard").distinct()
    assert len(shards) == 10
    assert len({shard for _, shard in shards}) > 1


def test_rows_of_a_shard_that_is_no_more_are_relayed_all_the_same(db, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "SHARDS": 8}
    publish_many([("row.ok", {})] * 20)
    settings.EVENTBUS = {**settings.EVENTBUS, "SHARDS": 1}

    assert Relay(ScriptedPublisher(), "default").relay_once() == 20


@pytest.mark.postgres
def test_a_second_relay_leaves_a_shard_alone_that_another_works_on(db):
    publish_many([("row.ok", {})] * 2)
    inside, go_on = threading.Event(), threading.Event()

    class SlowPublisher(ScriptedPublisher):
        def publish(self, batch):
            inside.set()
            assert go_on.wait(10)
            return super().publish(batch)

    def work():
        Relay(SlowPublisher(), "default").relay_once()
        connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    assert inside.wait(10)
    other = ScriptedPublisher()

    assert Relay(other, "default").relay_once() == 0

    go_on.set()
    thread.join(10)
    assert other.sent == []
    assert states() == ["published", "published"]


@pytest.mark.sqlite
def test_on_sqlite_a_lease_says_which_relay_works(db, caplog):
    publish("row.ok", {})
    first, second = Relay(ScriptedPublisher(), "default"), Relay(ScriptedPublisher(), "default")
    first.relay_once()
    publish("row.ok", {})

    assert second.relay_once() == second.relay_once() == 0
    assert caplog.text.count("Another relay holds the outbox of 'default'") == 1
    first.close()
    assert second.relay_once() == 1
    assert RelayLease.objects.get().holder == second.holder


@pytest.mark.sqlite
def test_on_sqlite_the_lease_of_a_dead_relay_runs_out(db):
    publish("row.ok", {})
    Relay(ScriptedPublisher(), "default").relay_once()
    publish("row.ok", {})
    RelayLease.objects.update(expires_at=timezone.now() - timedelta(seconds=1))

    assert Relay(ScriptedPublisher(), "default").relay_once() == 1


@pytest.mark.postgres
def test_an_event_that_commits_late_is_not_overtaken_by_a_later_one_of_its_key(bus, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "SHARDS": 1}
    bus.subscribe("#", name="all")(lambda event: None)
    begun, go_on = threading.Event(), threading.Event()

    def commit_late():
        with transaction.atomic():
            publish("step.taken", {"step": 1}, key="k")
            begun.set()
            assert go_on.wait(20)
        connection.close()

    def commit_both():
        go_on.set()
        late.join(20)
        second.start()
        second.join(20)

    def commit_second():
        publish("step.taken", {"step": 2}, key="k")
        connection.close()

    late, second = threading.Thread(target=commit_late), threading.Thread(target=commit_second)
    late.start()
    assert begun.wait(20)
    publish_many([("step.taken", {"step": 0})] * 2)
    relay = Relay(bus.publisher, "default", batch_size=2)

    # Both commit between two claims of one transaction of the relay.
    with interlude("relay.claimed", commit_both):
        relay.relay_once()
    relay.relay_once()

    bodies = [bytes(each.body) for each in QueuedMessage.objects.order_by("id")]
    assert bodies[2:] == [b'{"step":1}', b'{"step":2}']
