"""Handled once, and acked only if it committed."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from datetime import timedelta

import pytest
from django.db import (
    DataError,
    IntegrityError,
    OperationalError,
    close_old_connections,
    connection,
    transaction,
)
from django.utils import timezone

from django_eventbus import GiveUp, RetryLater, Skip, TooEarly, publish
from django_eventbus.conf import conf
from django_eventbus.events.message import NOT_BEFORE, RETRY_COUNT, SUBSCRIPTION
from django_eventbus.exceptions import BrokerUnavailable, Busy
from django_eventbus.models import (
    Attempt,
    DeadLetter,
    InboxMark,
    InboxRecord,
    OutboxEvent,
    QueuedMessage,
)
from django_eventbus.subscriptions.outcomes import Defer, Duplicate, Handled, Park, Retry, Skipped
from django_eventbus.subscriptions.subscription import Arrival, registry
from tests.shop.models import Child, Effect, Parent
from tests.support.helpers import eventually

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]


def leave_effect(event):
    Effect.objects.create(event_id=event.meta.id, subscription=event.meta.subscription)


def arrived(bus, **changes):
    """Put a message into the main queue and receive it."""
    bus.put(**changes)
    return bus.receive()


def test_a_message_is_handled_and_recorded(bus):
    bus.subscribe("order.*", name="billing")(leave_effect)

    message = bus.put()
    outcomes = bus.consume()

    assert outcomes == [Handled()]
    record = InboxRecord.objects.get()
    assert (record.subscription, record.message_id, record.state) == (
        "billing",
        message.id,
        "handled",
    )
    assert Effect.objects.count() == 1
    assert not QueuedMessage.objects.exists()


def test_a_first_try_success_leaves_one_row_in_the_inbox_and_no_attempt(bus):
    bus.subscribe("order.*")(leave_effect)

    bus.put()
    bus.consume()

    assert InboxRecord.objects.count() == 1
    assert not Attempt.objects.exists()


def test_the_same_message_twice_has_one_effect(bus):
    bus.subscribe("order.*")(leave_effect)

    message = bus.put()
    bus.put(message)

    assert bus.consume() == [Handled()]
    assert bus.consume() == [Duplicate(state="handled", attempt=1)]
    assert Effect.objects.count() == 1
    assert not QueuedMessage.objects.exists()


@pytest.mark.postgres
def test_the_same_message_to_two_workers_at_the_same_moment_has_one_effect(bus):
    inside, go_on = threading.Event(), threading.Event()

    @bus.subscribe("order.*")
    def slow(event):
        leave_effect(event)
        inside.set()
        assert go_on.wait(10)

    message = bus.put()
    bus.put(message)
    first, second = bus.receive(), bus.receive()
    worker = threading.Thread(target=in_thread, args=(bus.settle, first))
    worker.start()
    assert inside.wait(10)

    busy = bus.settle(second)
    go_on.set()
    worker.join()

    assert busy == []
    assert Effect.objects.count() == 1
    bus.pass_time()
    assert bus.consume() == [Duplicate(state="handled", attempt=1)]
    assert Effect.objects.count() == 1


def test_two_workers_at_the_same_moment_leave_one_effect_on_any_database(bus):
    bus.subscribe("order.*")(leave_effect)
    for _ in range(5):
        message = bus.put()
        bus.put(message)
        outcomes = consume_at_once(bus, [bus.receive(), bus.receive()])
        assert outcomes.count(Handled()) == 1

    bus.drain()

    assert Effect.objects.count() == 5
    assert not DeadLetter.objects.exists()


def in_thread(function, *args):
    try:
        function(*args)
    finally:
        connection.close()


def test_each_subscription_has_its_own_record_and_outcome(bus):
    bus.subscribe("order.*", name="good")(leave_effect)

    @bus.subscribe("order.placed", name="bad")
    def bad(event):
        raise ValueError("no")

    bus.put()
    outcomes = bus.consume()

    assert outcomes == [Handled(), Retry(delay=30.0)]
    states = dict(InboxRecord.objects.values_list("subscription", "state"))
    assert states == {"good": "handled", "bad": "retrying"}


def test_a_failed_subscription_never_runs_its_siblings_again(bus):
    bus.subscribe("order.*", name="good")(leave_effect)

    @bus.subscribe("order.*", name="bad")
    def bad(event):
        raise ValueError("no")

    bus.put()
    bus.drain()

    assert Effect.objects.count() == 1
    assert bus.letter.subscription == "bad"
    assert bus.letter.attempts == 4


def test_a_failure_keeps_its_history(bus):
    @bus.subscribe("order.*", name="bad", retry=["1s", "5m"])
    def bad(event):
        raise ValueError(f"attempt {event.meta.attempt} of {event.meta.tries}")

    bus.put()
    bus.drain()

    attempts = Attempt.objects.order_by("attempt")
    assert [(each.attempt, each.tier, each.error) for each in attempts] == [
        (1, "1s", "attempt 1 of 3"),
        (2, "5m", "attempt 2 of 3"),
        (3, "", "attempt 3 of 3"),
    ]
    assert "raise ValueError" in bus.letter.traceback
    assert (bus.letter.error_type, bus.letter.kind) == ("ValueError", "failed")
    assert all(each.host and each.duration >= 0 for each in attempts)


def test_the_effects_of_a_failed_attempt_are_rolled_back(bus):
    @bus.subscribe("order.*", tries=1)
    def bad(event):
        leave_effect(event)
        publish("order.billed", {})
        raise ValueError("no")

    bus.put()
    bus.consume()

    assert not Effect.objects.exists()
    assert not OutboxEvent.objects.exists()


@pytest.mark.parametrize(
    ("verdict", "outcome", "state"),
    [
        (Skip("not ours"), Skipped(reason="not ours"), "skipped"),
        (GiveUp("no such card"), Park(kind="given_up", reason="GiveUp: no such card"), "parked"),
        (RetryLater(), Retry(delay=30.0), "retrying"),
        (SystemExit(3), Retry(delay=30.0), "retrying"),
    ],
)
def test_a_handler_chooses_its_outcome_by_what_it_raises(bus, verdict, outcome, state):
    @bus.subscribe("order.*")
    def choosing(event):
        leave_effect(event)
        raise verdict

    bus.put()

    assert bus.consume() == [outcome]
    assert InboxRecord.objects.get().state == state
    assert not Effect.objects.exists()


def test_an_odd_delay_goes_through_the_outbox_and_counts_an_attempt(bus):
    @bus.subscribe("order.*", name="later")
    def later(event):
        if event.meta.attempt == 1:
            raise RetryLater(after="42s")
        leave_effect(event)

    bus.put()
    assert bus.consume() == [Retry(delay=42.0, by_tier=False)]

    row = OutboxEvent.objects.get()
    assert (row.state, row.queue, row.subscription) == ("scheduled", conf.queue(), "later")
    assert timedelta(seconds=40) < row.due_at - timezone.now() < timedelta(seconds=43)
    bus.drain()
    assert Effect.objects.count() == 1


def test_too_early_comes_back_without_an_attempt_counted(bus):
    attempts = []

    @bus.subscribe("order.*")
    def early(event):
        attempts.append(event.meta.attempt)
        if len(attempts) < 3:
            raise TooEarly(until=timezone.now() + timedelta(minutes=1))
        leave_effect(event)

    bus.put()
    bus.drain()

    assert attempts == [1, 1, 1]
    assert Effect.objects.count() == 1
    assert not Attempt.objects.exists()


def test_a_second_copy_of_a_deferred_message_is_not_run_early(bus):
    until = timezone.now() + timedelta(minutes=1)

    @bus.subscribe("order.*")
    def early(event):
        raise TooEarly(until=until)

    message = bus.put()
    bus.put(message)

    assert bus.consume() == [Defer(until=until)]
    assert bus.consume() == [Duplicate(state="deferred", attempt=0)]
    assert OutboxEvent.objects.count() == 1


def test_a_time_gone_by_defers_for_a_moment_and_does_not_go_round_and_round(bus):
    @bus.subscribe("order.*")
    def confused(event):
        raise TooEarly(until=timezone.now() - timedelta(minutes=1))

    bus.put()
    bus.consume()

    assert OutboxEvent.objects.get().due_at > timezone.now()
    assert bus.relay() == 0


def test_what_is_deferred_past_the_limit_is_parked(bus, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "DEFER_LIMIT": "1h"}

    @bus.subscribe("order.*")
    def early(event):
        raise TooEarly(until=timezone.now() + timedelta(hours=2))

    bus.put()
    bus.consume()

    assert bus.letter.kind == "too_early"


def test_a_message_before_its_time_is_deferred_and_never_early(bus):
    bus.subscribe("order.*")(leave_effect)
    due = timezone.now().replace(microsecond=0) + timedelta(minutes=5)

    bus.put(headers={NOT_BEFORE: int(due.timestamp() * 1000)})

    assert bus.consume() == [Defer(until=due)]
    assert not Effect.objects.exists()


def test_a_handler_that_rolls_back_is_not_acked_as_success(bus):
    @bus.subscribe("order.*")
    def rolling_back(event):
        leave_effect(event)
        transaction.set_rollback(True)

    bus.put()

    assert bus.consume() == [Retry(delay=30.0)]
    assert Attempt.objects.get().error_type == "NotCommitted"
    assert not Effect.objects.exists()


@pytest.mark.parametrize("close", [lambda: connection.close(), close_old_connections])
def test_a_handler_that_closes_the_connection_is_not_acked_as_success(bus, close):
    @bus.subscribe("order.*")
    def closing(event):
        leave_effect(event)
        close()

    bus.put()

    assert bus.consume_after_a_cut() == [Retry(delay=30.0)]
    assert Attempt.objects.get().error_type == "NotCommitted"
    assert not Effect.objects.exists()


@pytest.mark.postgres
def test_a_handler_that_swallows_an_sql_error_is_not_acked_as_success(bus):
    @bus.subscribe("order.*")
    def swallowing(event):
        leave_effect(event)
        with suppress(DataError):
            connection.cursor().execute("SELECT 1 / 0")

    bus.put()

    assert bus.consume() == [Retry(delay=30.0)]
    assert "caught a database error" in Attempt.objects.get().error
    assert not Effect.objects.exists()


@pytest.mark.sqlite
def test_sqlite_undoes_a_failed_statement_alone_so_swallowing_its_error_commits(bus):
    @bus.subscribe("order.*")
    def swallowing(event):
        leave_effect(event)
        with suppress(IntegrityError):
            connection.cursor().execute("INSERT INTO eventbus_inboxmark (id) VALUES (NULL)")

    bus.put()

    assert bus.consume() == [Handled()]
    assert Effect.objects.count() == 1


def test_a_broken_deferred_foreign_key_is_not_acked_as_success(bus):
    @bus.subscribe("order.*")
    def breaking(event):
        leave_effect(event)
        Child.objects.create(parent_id=4711)

    bus.put()

    assert bus.consume() == [Retry(delay=30.0)]
    assert Attempt.objects.get().error_type == "IntegrityError"
    assert not Effect.objects.exists()
    assert not Child.objects.exists()


def test_a_commit_hook_that_raises_does_not_cause_a_retry(bus, caplog):
    @bus.subscribe("order.*", name="hooked")
    def hooked(event):
        leave_effect(event)
        transaction.on_commit(lambda: 1 / 0)

    bus.put()

    assert bus.consume() == [Handled()]
    assert Effect.objects.count() == 1
    assert "An on_commit hook of hooked raised ZeroDivisionError" in caplog.text


def test_a_missing_table_is_a_failure_and_not_an_outage(bus):
    @bus.subscribe("order.*")
    def asking(event):
        connection.cursor().execute("SELECT * FROM no_such_table")

    bus.put()

    assert bus.consume() == [Retry(delay=30.0)]


@pytest.mark.postgres
def test_a_deadlock_between_two_handlers_is_run_again(bus):
    left = Parent.objects.create(name="left")
    right = Parent.objects.create(name="right")
    both_hold_one = threading.Barrier(2, timeout=10)
    runs = []

    @bus.subscribe("order.*", name="crossing")
    def crossing(event):
        runs.append(event.meta.id)
        first, second = (left, right) if event.payload["left_first"] else (right, left)
        Parent.objects.filter(pk=first.pk).update(name="mine")
        if len(runs) <= 2:
            both_hold_one.wait()
        Parent.objects.filter(pk=second.pk).update(name="mine")
        leave_effect(event)

    bodies = (b'{"left_first": true}', b'{"left_first": false}')
    deliveries = [arrived(bus, body=body) for body in bodies]
    outcomes = consume_at_once(bus, deliveries)

    assert outcomes == [Handled(), Handled()]
    assert len(runs) == 3
    assert Effect.objects.count() == 2
    assert not Attempt.objects.exists()


def consume_at_once(bus, deliveries):
    outcomes = []

    together = threading.Barrier(len(deliveries), timeout=10)

    def work(delivery):
        together.wait()
        outcomes.extend(each.outcome for each in bus.settle(delivery))

    threads = [threading.Thread(target=in_thread, args=(work, each)) for each in deliveries]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return outcomes


@pytest.mark.postgres
def test_a_handler_that_always_fails_to_serialise_is_retried_and_does_not_loop(bus):
    runs = []

    @bus.subscribe("order.*")
    def unlucky(event):
        runs.append(1)
        connection.cursor().execute("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$")

    bus.put()

    assert bus.consume() == [Retry(delay=30.0)]
    assert len(runs) == 4


@pytest.mark.postgres
def test_a_connection_lost_in_the_handler_burns_no_attempt_if_it_can_be_run_again(bus):
    runs = []

    @bus.subscribe("order.*")
    def cut_off(event):
        runs.append(1)
        leave_effect(event)
        if len(runs) == 1:
            connection.cursor().execute("SELECT pg_terminate_backend(pg_backend_pid())")

    bus.put()

    assert bus.consume_after_a_cut() == [Handled()]
    assert Effect.objects.count() == 1
    assert not Attempt.objects.exists()


def test_a_copy_that_is_not_newer_is_settled_again_as_recorded(bus):
    @bus.subscribe("order.*", name="bad")
    def bad(event):
        raise ValueError("no")

    message = bus.put()
    bus.put(message)

    assert bus.consume() == [Retry(delay=30.0)]
    assert bus.consume() == [Duplicate(state="retrying", attempt=1, delay=30.0)]
    waiting = QueuedMessage.objects.all()
    assert [each.headers[RETRY_COUNT] for each in waiting] == [1, 1]
    assert Attempt.objects.count() == 1


def test_two_copies_of_each_attempt_still_count_each_attempt_once(bus):
    attempts = []

    @bus.subscribe("order.*", name="bad", retry=["1s", "1s"])
    def bad(event):
        attempts.append(event.meta.attempt)
        raise ValueError("no")

    message = bus.put()
    bus.put(message)
    bus.drain()

    assert attempts == [1, 2, 3]
    assert bus.letter.attempts == 3


def test_an_addressed_copy_runs_only_its_subscription(bus):
    ran = []
    bus.subscribe("order.*", name="one")(lambda event: ran.append("one"))
    bus.subscribe("order.*", name="two")(lambda event: ran.append("two"))

    bus.put(headers={SUBSCRIPTION: "two"})
    bus.consume()

    assert ran == ["two"]


def test_a_renamed_subscription_knows_what_it_handled_under_its_old_name(bus):
    bus.subscribe("order.*", name="old")(leave_effect)
    message = bus.put()
    bus.put(message)
    bus.consume()
    registry.remove(registry.named("old"))
    bus.subscribe("order.*", name="new", aliases=["old"])(leave_effect)

    assert bus.consume() == [Duplicate(state="handled", attempt=1)]
    assert InboxRecord.objects.get().subscription == "old"


def test_a_retry_addressed_to_the_old_name_reaches_the_renamed_subscription(bus):
    bus.subscribe("order.*", name="new", aliases=["old"])(leave_effect)

    bus.put(headers={SUBSCRIPTION: "old", RETRY_COUNT: 1})

    assert bus.consume() == [Handled()]
    assert Effect.objects.get().subscription == "new"


def test_without_a_transaction_the_handler_runs_in_autocommit_and_is_recorded_after(bus):
    seen = []

    @bus.subscribe("order.*", atomic=False)
    def free(event):
        seen.append(connection.in_atomic_block)
        leave_effect(event)

    message = bus.put()
    bus.put(message)

    assert bus.consume() == [Handled()]
    assert bus.consume() == [Duplicate(state="handled", attempt=1)]
    assert seen == [False]
    assert Effect.objects.count() == 1


def test_without_a_transaction_a_failure_keeps_what_was_written_before_it(bus):
    @bus.subscribe("order.*", atomic=False)
    def free(event):
        leave_effect(event)
        raise ValueError("half way")

    bus.put()

    assert bus.consume() == [Retry(delay=30.0)]
    assert Effect.objects.count() == 1


def test_a_redelivered_message_counts_its_start_and_is_handled(bus):
    bus.subscribe("order.*")(leave_effect)
    bus.put()
    bus.receive()
    bus.pass_time()

    delivery = bus.receive()
    assert delivery.is_redelivered
    bus.settle(delivery)

    record = InboxRecord.objects.get()
    assert (record.state, record.started) == ("handled", 0)
    assert Effect.objects.count() == 1


def test_a_message_that_started_too_often_is_parked_unrun(bus, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "START_LIMIT": 2}
    bus.subscribe("order.*", name="killer")(leave_effect)
    message = bus.put()
    bus.receive()
    bus.pass_time()
    delivery = bus.receive()
    InboxRecord.objects.create(
        subscription="killer",
        message_id=message.id,
        queue=delivery.queue,
        state="started",
        started=2,
    )

    bus.settle(delivery)

    assert bus.letter.kind == "start_limit"
    assert not Effect.objects.exists()


def test_a_suspect_that_waits_to_run_alone_has_not_been_counted_yet(bus):
    """Else the message that kills the process beside it uses up its starts too."""
    bus.subscribe("order.*", name="innocent")(leave_effect)
    message = bus.put()
    bus.receive()
    bus.pass_time()
    delivery = bus.receive()
    started = InboxRecord.objects.create(
        subscription="innocent",
        message_id=message.id,
        queue=delivery.queue,
        state="started",
        started=conf.start_limit - 1,
    )
    isolation = bus.consumer.inbox.isolation
    isolation.patience = 0.01

    with isolation.together(), pytest.raises(Busy):
        bus.consumer.inbox.handle_once(
            registry.named("innocent"),
            Arrival(
                message=delivery.message,
                payload={},
                queue=delivery.queue,
                is_redelivered=delivery.is_redelivered,
            ),
        )

    started.refresh_from_db()
    assert started.started == conf.start_limit - 1
    assert not bus.consumer.inbox.starts_to_undo


def test_a_start_that_an_outage_cut_short_is_taken_back(bus):
    bus.subscribe("order.*", name="billing")(leave_effect)
    message = bus.put()
    InboxRecord.objects.create(
        subscription="billing", message_id="other", queue=conf.queue(), state="started", started=3
    )
    from msgspec.structs import replace

    bus.consumer.inbox.starts_to_undo.append(
        (registry.named("billing"), replace(message, id="other"))
    )
    bus.consume()

    assert InboxRecord.objects.get(message_id="other").started == 2


def test_inside_a_test_case_the_marker_takes_a_kept_hook_for_a_commit(bus):
    bus.subscribe("order.*")(leave_effect)
    bus.put()
    outermost = transaction.atomic()
    outermost._from_testcase = True

    with outermost:
        assert bus.consume() == [Handled()]
        transaction.set_rollback(True)

    assert not Effect.objects.exists()


def test_an_operational_error_of_the_handler_itself_is_a_failure(bus):
    @bus.subscribe("order.*")
    def failing(event):
        raise OperationalError("the other system is down")

    bus.put()

    assert bus.consume() == [Retry(delay=30.0)]


def test_the_dead_letter_and_the_record_are_written_together(bus):
    @bus.subscribe("order.*", tries=1, name="bad")
    def bad(event):
        raise ValueError("no")

    bus.put()
    bus.consume()

    assert InboxRecord.objects.get().state == "parked"
    assert DeadLetter.objects.get().state == "open"


async def coroutine(event):
    leave_effect(event)


def generator(event):
    yield leave_effect(event)


@pytest.mark.parametrize("handler", [coroutine, generator, lambda event: GiveUp("not raised")])
def test_a_handler_whose_work_nobody_would_do_is_not_acked_as_success(bus, handler):
    bus.subscribe("order.*", name="lazy")(handler)

    bus.put()

    assert bus.consume() == [Retry(delay=30.0)]
    assert Attempt.objects.get().error_type == "TypeError"


def test_an_error_swallowed_inside_the_orm_is_named_as_such(bus):
    Parent.objects.create(pk=1)

    @bus.subscribe("order.*")
    def swallowing(event):
        with suppress(IntegrityError):
            Parent.objects.create(pk=1)

    bus.put()

    assert bus.consume() == [Retry(delay=30.0)]
    assert "caught a database error" in Attempt.objects.get().error


def test_a_deferred_message_that_a_fast_clock_sends_back_early_is_not_lost(bus):
    attempts = []

    @bus.subscribe("order.*")
    def early(event):
        attempts.append(event.meta.attempt)
        if len(attempts) == 1:
            # Long enough for a busy machine to send it back before.
            raise TooEarly(until=timezone.now() + timedelta(seconds=2))
        leave_effect(event)

    bus.put()
    bus.consume()
    OutboxEvent.objects.update(due_at=timezone.now())
    bus.relay()

    assert isinstance(bus.consume()[0], Defer)
    assert OutboxEvent.objects.filter(state="scheduled").exists()
    eventually(lambda: bus.relay() and bus.consume(), timeout=20)
    assert Effect.objects.count() == 1


def test_without_a_transaction_nothing_too_old_is_run(bus):
    InboxMark.objects.advance(timezone.now() - timedelta(days=1))
    bus.subscribe("order.*", atomic=False)(leave_effect)

    bus.put(sent_at=timezone.now() - timedelta(days=2))
    bus.consume()

    assert bus.letter.kind == "too_old"
    assert not Effect.objects.exists()


def test_without_a_transaction_a_failed_statement_is_not_run_again_at_once(bus):
    runs = []

    @bus.subscribe("order.*", atomic=False)
    def locked_out(event):
        runs.append(1)
        raise OperationalError("database is locked")

    bus.put()
    bus.consume()

    assert len(runs) == 1


def test_old_and_new_processes_share_the_record_of_a_renamed_subscription(bus):
    message = bus.put()
    bus.put(message)
    bus.subscribe("order.*", name="new", aliases=["old"])(leave_effect)
    bus.consume()
    registry.remove(registry.named("new"))

    bus.subscribe("order.*", name="old")(leave_effect)

    assert bus.consume() == [Duplicate(state="handled", attempt=1)]
    assert Effect.objects.count() == 1


@pytest.mark.parametrize("raised", [asyncio.CancelledError(), Busy("x"), BrokerUnavailable("x")])
def test_whatever_a_handler_raises_is_its_failure_and_never_an_outage(bus, raised):
    @bus.subscribe("order.*")
    def raising(event):
        raise raised

    bus.put()

    assert bus.consume() == [Retry(delay=30.0)]
    assert Attempt.objects.count() == 1


@pytest.mark.postgres
def test_what_a_sibling_settled_is_announced_although_another_is_busy(bus, caplog):
    caplog.set_level("DEBUG", "django_eventbus")
    message = bus.put()
    bus.subscribe("order.*", name="first")(leave_effect)
    bus.subscribe("order.*", name="second")(leave_effect)
    holding, go_on = threading.Event(), threading.Event()

    def hold():
        with transaction.atomic():
            InboxRecord.objects.claim("second", conf.queue(), message, "handled")
            holding.set()
            go_on.wait(10)
            transaction.set_rollback(True)

    holder = threading.Thread(target=in_thread, args=(hold,))
    holder.start()
    assert holding.wait(10)
    bus.consume()
    go_on.set()
    holder.join()

    assert "Handled order.placed" in caplog.text
    bus.drain()
    assert Effect.objects.count() == 2
