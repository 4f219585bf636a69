"""Dead letters go back to who failed, and tell what came of it."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from django_eventbus import GiveUp, Skip, TooEarly
from django_eventbus.conf import conf
from django_eventbus.dead_letters.parking import ParkingCause, failure_signature, park
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.durations import Throttle
from django_eventbus.events.message import (
    REDRIVEN_AT,
    REDRIVEN_BY,
    REDRIVEN_COUNT,
    REDRIVEN_DEAD_LETTER,
    RETRY_COUNT,
    SUBSCRIPTION,
)
from django_eventbus.models import Attempt, DeadLetter, InboxRecord, OutboxEvent
from django_eventbus.outbox.relay import Relay
from django_eventbus.redrive.discards import discard, restore_selected
from django_eventbus.redrive.letters import mark_unanswered, redrive
from django_eventbus.subscriptions.outcomes import Defer, Duplicate, Skipped
from django_eventbus.subscriptions.subscription import registry
from tests.outbox.test_relay import ScriptedPublisher
from tests.shop.models import Effect
from tests.support.interludes import interlude

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]


class Fault:
    """A handler that fails until it is mended."""

    def __init__(self):
        self.is_mended = False
        self.metas = []

    def __call__(self, event):
        self.metas.append(event.meta)
        if not self.is_mended:
            raise ValueError("still broken")
        Effect.objects.create(event_id=event.meta.id, subscription="faulty")


@pytest.fixture
def fault(bus):
    """One message, failed to the end, and parked."""
    fault = Fault()
    bus.subscribe("order.*", name="faulty", retry=["1s", "1s"])(fault)
    bus.subscribe("order.*", name="sibling")(lambda event: None)
    bus.put()
    bus.drain()
    return fault


def redrive_all():
    ids = DeadLetter.objects.values_list("pk", flat=True)
    return redrive(list(ids), by="tester", using="default")


def test_a_re_drive_that_works_heals_the_dead_letter(bus, fault):
    fault.is_mended = True

    assert redrive_all() == 1
    assert bus.letter.state == "redriving"
    bus.drain()

    assert bus.letter.state == "healed"
    assert bus.letter.closed_at
    assert Effect.objects.count() == 1


def test_a_re_drive_has_one_try_and_its_history_is_kept(bus, fault):
    redrive_all()
    bus.drain()

    last = fault.metas[-1]
    assert (last.round, last.attempt, last.tries, last.is_last) == (1, 1, 1, True)
    assert (bus.letter.state, bus.letter.round) == ("open", 1)
    history = Attempt.objects.order_by("id").values_list("round", "attempt")
    assert list(history) == [(0, 1), (0, 2), (0, 3), (1, 1)]


def test_a_re_drive_may_have_more_tries_by_setting(bus, fault, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "REDRIVE": {"TRIES": 3}}

    redrive_all()
    bus.drain()

    assert [meta.attempt for meta in fault.metas] == [1, 2, 3, 1, 2, 3]
    assert (bus.letter.round, bus.letter.attempts) == (1, 3)


def test_the_copy_is_addressed_and_says_who_sent_it_again(bus, fault):
    redrive_all()

    row = OutboxEvent.objects.get()
    assert (row.queue, row.subscription, row.routing_key) == (conf.queue(), "faulty", conf.queue())
    assert row.message_id == bus.letter.message_id
    assert row.headers[SUBSCRIPTION] == "faulty"
    assert row.headers[RETRY_COUNT] == 0
    assert row.headers[REDRIVEN_BY] == "tester"
    assert row.headers[REDRIVEN_COUNT] == 1
    assert row.headers[REDRIVEN_DEAD_LETTER] == bus.letter.pk
    assert row.headers[REDRIVEN_AT].startswith("20")


def test_a_sibling_that_had_succeeded_does_not_run_again(bus, fault):
    fault.is_mended = True

    redrive_all()
    bus.drain()

    record = InboxRecord.objects.get(subscription="sibling")
    assert (record.state, record.round) == ("handled", 0)


def test_only_open_dead_letters_are_re_driven(bus, fault):
    assert redrive_all() == 1
    assert redrive_all() == 0
    assert OutboxEvent.objects.count() == 1


@pytest.mark.postgres
def test_two_people_at_once_re_drive_each_dead_letter_once(bus, fault):
    counts, barrier = [], threading.Barrier(4, timeout=10)

    def work():
        barrier.wait()
        counts.append(redrive_all())
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert sorted(counts) == [0, 0, 0, 1]
    assert OutboxEvent.objects.count() == 1


def test_a_second_copy_of_a_re_drive_has_no_second_effect(bus, fault):
    fault.is_mended = True
    redrive_all()
    OutboxEvent.objects.update(state="ready")
    bus.relay()
    OutboxEvent.objects.update(state="ready")
    bus.relay()

    bus.consume()

    assert bus.consume() == [Duplicate(state="handled", attempt=1)]
    assert Effect.objects.count() == 1


def test_an_unanswered_re_drive_is_opened_again_as_unknown(bus, fault):
    redrive_all()
    DeadLetter.objects.update(redriven_at=timezone.now() - timedelta(hours=2))

    assert mark_unanswered("default") == 1

    assert bus.letter.state == "unknown"
    assert (bus.letter.unanswered, bus.letter.note) == ("timeout", "")
    assert redrive_all() == 1


def test_an_answer_that_comes_late_still_heals(bus, fault):
    fault.is_mended = True
    redrive_all()
    DeadLetter.objects.update(redriven_at=timezone.now() - timedelta(hours=2))
    mark_unanswered("default")

    bus.drain()

    assert bus.letter.state == "healed"


def test_a_late_failure_opens_an_unanswered_dead_letter_again(bus, fault):
    redrive_all()
    DeadLetter.objects.update(redriven_at=timezone.now() - timedelta(hours=2))
    mark_unanswered("default")

    bus.drain()

    assert (bus.letter.state, bus.letter.round) == ("open", 1)


def test_the_relay_looks_for_unanswered_re_drives(bus, fault):
    redrive_all()
    OutboxEvent.objects.all().delete()
    DeadLetter.objects.update(redriven_at=timezone.now() - timedelta(hours=2))

    bus.relay_loop.plans.upkeep = Throttle(0)
    bus.relay()

    assert bus.letter.state == "unknown"


def test_a_re_drive_that_the_broker_does_not_take_is_reported(bus, fault):
    redrive_all()
    OutboxEvent.objects.update(type="row.broken")
    bus.relayer.close()

    Relay(ScriptedPublisher(), "default").relay_once()

    assert bus.letter.state == "unknown"
    assert bus.letter.unanswered == "unsent"


def test_a_discarded_dead_letter_is_closed_with_its_reason(bus, fault):
    assert discard([bus.letter.pk], reason="a test order", by="me", using="default") == 1
    assert discard([bus.letter.pk], reason="again", by="me", using="default") == 0

    assert (bus.letter.state, bus.letter.note) == ("discarded", "a test order")
    assert redrive_all() == 0


def test_a_copy_that_arrives_after_the_discard_is_not_run(bus, fault):
    fault.is_mended = True
    redrive_all()
    DeadLetter.objects.update(redriven_at=timezone.now() - timedelta(hours=2))
    mark_unanswered("default")

    discard([bus.letter.pk], reason="too late", by="me", using="default")
    bus.drain()

    assert bus.letter.state == "discarded"
    assert not Effect.objects.exists()


def test_a_discarded_dead_letter_whose_re_drive_is_still_retrying_is_not_run(bus, fault, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "REDRIVE": {"TRIES": 2}}
    redrive_all()
    bus.relay()
    bus.consume()
    DeadLetter.objects.update(redriven_at=timezone.now() - timedelta(hours=2))
    mark_unanswered("default")

    fault.is_mended = True
    discard([bus.letter.pk], reason="enough", by="me", using="default")
    bus.drain()

    assert (bus.letter.state, bus.letter.closed_by) == ("discarded", "me")
    assert not Effect.objects.exists()


def test_a_discarded_message_that_had_reached_no_subscription_is_not_run(bus):
    ran = []
    bus.subscribe("#")(lambda event: ran.append(event))
    bus.put(id="")
    bus.consume()
    redrive_all()
    DeadLetter.objects.update(state="unknown")

    discard([bus.letter.pk], reason="rubbish", by="me", using="default")
    bus.drain()

    assert bus.letter.state == "discarded"
    assert not ran


def test_a_healed_dead_letter_keeps_no_word_of_its_silence(bus, fault):
    fault.is_mended = True
    redrive_all()
    DeadLetter.objects.update(redriven_at=timezone.now() - timedelta(hours=2))
    mark_unanswered("default")
    bus.drain()

    assert (bus.letter.state, bus.letter.note) == ("healed", "")


def test_a_re_drive_reaches_a_subscription_that_was_renamed_since(bus, fault):
    registry.remove(registry.named("faulty"))
    bus.subscribe("order.*", name="mended", aliases=["faulty"])(fault)
    fault.is_mended = True

    redrive_all()
    bus.drain()

    assert (bus.letter.subscription, bus.letter.state) == ("faulty", "healed")


def unreached(bus, name):
    """Park a copy that is addressed to a subscription which nobody has."""
    bus.subscribe("other.*")(lambda event: None)
    bus.put(headers={"eventbus-subscription": name, "x-retry-count": 9})
    bus.consume()
    assert bus.letter.kind == "unmatched"


def test_what_was_parked_under_a_later_name_heals_when_that_is_known_as_an_alias(bus):
    unreached(bus, "later")
    bus.subscribe("order.*", name="latest", aliases=["later", "first"])(lambda event: None)

    redrive_all()
    bus.drain()

    assert (bus.letter.subscription, bus.letter.state) == ("later", "healed")


def test_a_discarded_message_that_only_the_dead_letter_knows_is_not_run_until_restored(bus):
    unreached(bus, "charge")
    ran = []
    bus.subscribe("order.*", name="charge")(ran.append)
    redrive_all()
    DeadLetter.objects.update(state="unknown")

    discard([bus.letter.pk], reason="rubbish", by="me", using="default")
    bus.drain()

    assert (bus.letter.state, ran) == ("discarded", [])
    assert InboxRecord.objects.get().error_text == "discarded: rubbish"
    restore_selected(Selection(), by="me", reason="", using="default")
    redrive_all()
    bus.drain()
    assert (bus.letter.state, len(ran)) == ("healed", 1)


def discarded_while_under_way(bus):
    redrive_all()
    DeadLetter.objects.update(state="unknown")
    discard([bus.letter.pk], reason="rubbish", by="me", using="default")


def restore_all():
    return restore_selected(Selection(), by="me", reason="", using="default")


def test_what_is_restored_while_its_copy_is_being_refused_is_tried_and_not_lost(bus):
    unreached(bus, "charge")
    ran = []
    bus.subscribe("order.*", name="charge")(ran.append)
    discarded_while_under_way(bus)
    bus.relay()

    with interlude("inbox.failed", restore_all):
        bus.consume()

    assert (bus.letter.state, ran) == ("open", [])
    assert not InboxRecord.objects.exists()
    bus.drain()
    assert (bus.letter.state, len(ran)) == ("healed", 1)


def test_what_is_discarded_while_its_handler_fails_is_not_tried_again(bus, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "REDRIVE": {"TRIES": 3}}
    unreached(bus, "charge")
    attempts = []

    def failing(event):
        attempts.append(event.meta.attempt)
        DeadLetter.objects.update(state="unknown")
        discard([bus.letter.pk], reason="stop", by="me", using="default")
        raise ValueError

    bus.subscribe("order.*", name="charge", retry=["1s"], atomic=False)(failing)
    redrive_all()
    bus.drain()

    assert (bus.letter.state, attempts) == ("discarded", [1])


def test_what_is_discarded_while_its_handler_succeeds_outside_a_transaction_is_handled(bus):
    unreached(bus, "charge")
    ran = []

    def handle(event):
        ran.append(event)
        DeadLetter.objects.update(state="unknown")
        discard([bus.letter.pk], reason="too late", by="me", using="default")

    bus.subscribe("order.*", name="charge", atomic=False)(handle)
    redrive_all()
    bus.drain()

    assert (bus.letter.state, InboxRecord.objects.get().state) == ("discarded", "handled")
    restore_all()
    redrive_all()
    bus.drain()
    assert (bus.letter.state, len(ran)) == ("healed", 1)


def test_a_discarded_copy_for_a_subscription_that_is_gone_is_skipped_at_once(bus):
    unreached(bus, "charge")
    discarded_while_under_way(bus)
    bus.relay()

    assert bus.consume() == [Skipped(reason="discarded: rubbish")]
    assert bus.letter.state == "discarded"


def test_a_discarded_copy_is_not_run_though_the_inbox_knows_it_by_another_name(bus):
    unreached(bus, "later")
    ran = []

    def failing(event):
        ran.append(event)
        raise ValueError

    bus.subscribe("order.*", name="latest", aliases=["later", "first"], tries=1)(failing)
    redrive_all()
    bus.drain()
    later = DeadLetter.objects.filter(subscription="later")
    later.update(state="unknown")
    redrive(later.values_list("pk", flat=True), by="me", using="default")
    later.update(state="unknown")
    discard(later.values_list("pk", flat=True), reason="stop", by="me", using="default")
    bus.drain()

    assert (later.get().state, len(ran)) == ("discarded", 1)


def test_what_was_handled_stays_handled_when_its_dead_letter_is_discarded_and_restored(bus):
    ran = []
    bus.subscribe("order.*", name="charge")(ran.append)
    message = bus.put()
    bus.drain()
    cause = ParkingCause(kind="delivery_limit", error_type="", error="too often")
    park(message, cause, subscription="charge", queue=conf.queue(), using="default")

    discard([bus.letter.pk], reason="it was handled", by="me", using="default")
    restore_all()
    redrive_all()
    bus.drain()

    assert (bus.letter.state, len(ran)) == ("healed", 1)


def test_the_same_failure_of_two_messages_has_one_fingerprint(bus):
    def failing(event):
        raise ValueError(f"order {event.meta.id} at 0x7f00 failed after {len(event.meta.id)} s")

    bus.subscribe("order.*", tries=1, name="failing")(failing)
    bus.put()
    bus.put()
    bus.consume()
    bus.consume()

    assert DeadLetter.objects.values("fingerprint").distinct().count() == 1


def test_different_failures_have_different_fingerprints():
    value_error = ParkingCause(kind="failed", error_type="ValueError", error="x")
    key_error = ParkingCause(kind="failed", error_type="KeyError", error="x")

    assert (
        failure_signature("a", value_error).fingerprint
        != failure_signature("a", key_error).fingerprint
    )
    assert (
        failure_signature("a", value_error).fingerprint
        != failure_signature("b", value_error).fingerprint
    )


def test_what_no_database_can_hold_is_parked_all_the_same(bus):
    @bus.subscribe("#", tries=1)
    def failing(event):
        raise ValueError("NUL \x00 and \ud800 surrogate")

    bus.put(body=b'{"text": "\\u0000"}', headers={"tenant": "x"})
    bus.consume()

    assert bus.letter.payload is None
    assert bytes(bus.letter.body) == b'{"text": "\\u0000"}'
    assert bus.letter.error == "NUL \ufffd and ? surrogate"


def test_a_long_traceback_is_kept_by_its_end(bus):
    @bus.subscribe("#", tries=1)
    def failing(event):
        raise ValueError("x" * 100_000 + "the end")

    bus.put()
    bus.consume()

    assert len(bus.letter.traceback) <= 20_000
    assert bus.letter.traceback.rstrip().endswith("the end")


def test_a_re_drive_that_is_skipped_closes_its_dead_letter(bus):
    verdicts = [GiveUp("no"), Skip("never mind")]

    @bus.subscribe("order.*")
    def choosing(event):
        raise verdicts.pop(0)

    bus.put()
    bus.consume()
    redrive_all()
    bus.drain()

    assert bus.letter.state == "healed"


def test_a_copy_for_an_absent_subscription_is_not_parked_beside_its_effect(bus, fault, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "TRIES": 1}
    fault.is_mended = True
    redrive_all()
    bus.drain()
    registry.remove(registry.named("faulty"))

    bus.put(id=bus.letter.message_id, headers={SUBSCRIPTION: "faulty"})

    assert bus.consume() == [Duplicate(state="handled")]
    assert bus.letter.state == "healed"


def test_the_failure_of_an_older_round_does_not_open_a_newer_one(bus, fault):
    redrive_all()
    DeadLetter.objects.update(redriven_at=timezone.now() - timedelta(hours=2))
    mark_unanswered("default")
    redrive_all()
    _, second = OutboxEvent.objects.order_by("id")
    OutboxEvent.objects.filter(pk=second.pk).update(
        state="scheduled", due_at=timezone.now() + timedelta(hours=1)
    )
    bus.relay()

    bus.consume()

    assert (bus.letter.state, bus.letter.round) == ("redriving", 2)


def test_a_dead_letter_re_driven_years_later_may_still_be_deferred(bus, fault):
    InboxRecord.objects.update(created_at=timezone.now() - timedelta(days=900))
    registry.remove(registry.named("faulty"))

    @bus.subscribe("order.*", name="faulty")
    def early(event):
        raise TooEarly(until=timezone.now() + timedelta(minutes=1))

    redrive_all()
    bus.relay()

    assert isinstance(bus.consume()[0], Defer)
