"""Discard, restore and ignore: over ids and over selections."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.utils import timezone

from django_eventbus.dead_letters.groups import groups
from django_eventbus.dead_letters.query import matching
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.exceptions import BadPlan
from django_eventbus.models import AuditEntry, DeadLetter, InboxRecord, Plan, PlannedLetter
from django_eventbus.redrive import plans
from django_eventbus.redrive.discards import (
    discard,
    discard_selected,
    ignore_selected,
    restore_selected,
    run_for,
    run_to_end,
    start_plan,
    unpaced,
)
from django_eventbus.redrive.dry_runs import dry_run
from django_eventbus.redrive.letters import redrive
from tests.redrive.test_plans import fault as fault
from tests.redrive.test_plans import park

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]

ALL = Selection()
WHO = {"by": "ada", "using": "default"}


def states():
    return sorted(DeadLetter.objects.values_list("state", flat=True))


def test_a_selection_is_discarded_with_its_inbox_records(bus, fault):
    park(bus, 3)

    assert discard_selected(ALL, reason="obsolete", **WHO) == 3

    assert states() == ["discarded"] * 3
    assert set(InboxRecord.objects.values_list("state", "skip_reason", "error")) == {
        ("skipped", "discarded", "obsolete")
    }
    asked, done = AuditEntry.objects.order_by("pk")
    assert (asked.verb, asked.by, asked.why, asked.count) == ("discard", "ada", "obsolete", 3)
    assert (done.verb, done.by, done.why, done.count) == ("discarded", "ada", "obsolete", 3)
    assert done.outcome == {"pending": 0, "discarded": 3, "skipped": 0}
    assert asked.plan_id == done.plan_id == Plan.objects.get().pk


def many(number):
    letters = [DeadLetter(message_id=str(each), queue="q", body=b"") for each in range(number)]
    return DeadLetter.objects.bulk_create(letters)


def started(action="discard", **pace):
    return start_plan(action, ALL, reason="x", pace=unpaced(**pace), **WHO)


def test_only_so_many_are_discarded_and_progress_is_told_by_step():
    many(503)
    told = []

    run_to_end(started(limit=501), on_step=told.append)

    assert told == [500, 501]
    assert states() == ["discarded"] * 501 + ["open"] * 2


def test_a_discard_is_a_plan_that_tells_what_came_of_each(bus, fault):
    park(bus, 2)
    plan = started()
    first, second = DeadLetter.objects.order_by("pk")
    redrive([first.pk], **WHO)

    run_to_end(plan)

    assert (plan.action, plan.state, plan.created_by) == ("discard", "done", "ada")
    assert plans.progress(plan) == {"pending": 0, "discarded": 1, "skipped": 1}
    assert [
        (row.dead_letter_id, row.reason_text) for row in PlannedLetter.objects.order_by("pk")
    ] == [
        (first.pk, "ada re-drove it in the meantime"),
        (second.pk, ""),
    ]


def test_the_workers_carry_a_discard_out_if_its_process_does_not(bus, fault):
    park(bus, 3)
    plan = started()

    bus.relay()

    plan.refresh_from_db()
    assert (plan.state, states()) == ("done", ["discarded"] * 3)


def test_a_discard_pauses_after_its_canary_for_a_person_to_look():
    many(5)
    plan = started(canary=2)

    run_to_end(plan)

    assert plan.state == "paused"
    assert plan.note_text.startswith("The canary of 2 is done. Check its result")
    assert states() == ["discarded"] * 2 + ["open"] * 3
    run_to_end(plans.resume(plan.pk, **WHO))
    assert states() == ["discarded"] * 5


def test_what_a_cancelled_discard_has_not_reached_stays_open(bus):
    many(3)
    plan = started(canary=1)
    run_to_end(plan)

    plans.cancel(plan.pk, **WHO)
    bus.relay()

    assert plans.progress(plan) == {"pending": 0, "discarded": 1, "skipped": 2}
    assert states() == ["discarded", "open", "open"]


def test_a_discard_keeps_to_its_rate():
    many(30)

    plan = started(rate=100)
    run_to_end(plan)

    moments = PlannedLetter.objects.order_by("pk").values_list("settled_at", flat=True)
    # Begun when the plan was: nothing is saved up before that.
    assert moments[29] - plan.started_at >= timedelta(seconds=0.3)


def test_a_request_begins_a_discard_and_leaves_the_rest_to_the_workers(bus):
    many(501)
    plan = started()

    run_for(plan, seconds=0)

    assert (plan.state, states().count("discarded")) == ("running", 500)
    bus.relay()
    assert states() == ["discarded"] * 501


def test_a_relay_that_runs_once_carries_a_whole_discard_out():
    many(1_001)
    plan = started()

    call_command("relay_events", "--once")

    assert plans.progress(plan) == {"pending": 0, "discarded": 1_001, "skipped": 0}


def test_a_relay_that_runs_once_leaves_all_of_a_cancelled_plan_alone():
    many(2_001)
    plan = started()
    plans.cancel(plan.pk, **WHO)

    call_command("relay_events", "--once")

    plan.refresh_from_db()
    assert plan.ended_at
    assert plans.progress(plan) == {"pending": 0, "discarded": 0, "skipped": 2_001}


def test_the_audit_tells_of_a_discard_that_paused_and_was_cancelled(bus):
    many(3)
    plan = started(canary=1)
    run_to_end(plan)

    plans.cancel(plan.pk, by="bob", using="default")
    bus.relay()

    found = AuditEntry.objects.order_by("pk").values_list("verb", "by", "why", "note", "count")
    assert list(found) == [
        ("discard", "ada", "x", "", 3),
        ("plan paused", "ada", "x", "canary_done", 1),
        ("cancel plan", "bob", "x", "", 0),
        ("plan ended", "ada", "x", "cancelled", 1),
    ]


@pytest.mark.postgres
def test_transactions_that_discard_the_same_in_another_order_do_not_wait_for_ever():
    first, second = (letter.pk for letter in many(2))
    barrier = threading.Barrier(2, timeout=20)

    def discard_both(ids):
        try:
            with transaction.atomic():
                discard(ids[:1], reason="x", **WHO)
                barrier.wait()
                return discard(ids[1:], reason="x", **WHO)
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(discard_both, [(first, second), (second, first)], timeout=20))

    assert found == [0, 0]
    assert states() == ["discarded"] * 2


def test_a_request_sees_that_a_worker_was_quicker(bus):
    many(3)
    plan = started()
    bus.relay()

    run_for(plan, seconds=5)

    assert (plan.state, plans.progress(plan)["discarded"]) == ("done", 3)
    assert plan.ended_at


@contextmanager
def plan_claimed_by_a_worker(plan):
    """Hold the plan as the step of a worker does."""
    worker = connections.create_connection("default")
    worker.inc_thread_sharing()
    try:
        worker.set_autocommit(False)
        with worker.cursor() as cursor:
            cursor.execute("SELECT 1 FROM eventbus_plan WHERE id = %s FOR UPDATE", [plan.pk])
        yield worker
    finally:
        worker.close()


@pytest.mark.postgres
def test_a_request_waits_a_moment_for_the_worker_that_has_its_plan():
    many(3)
    plan = started()

    with plan_claimed_by_a_worker(plan) as worker:
        letting_go = threading.Timer(0.2, worker.close)
        letting_go.start()
        run_for(plan, seconds=20)
        letting_go.join()

    assert (plan.state, plans.progress(plan)["discarded"]) == ("done", 3)


@pytest.mark.postgres
def test_a_request_in_a_transaction_leaves_a_plan_to_the_worker_that_has_it():
    many(3)
    plan = started()
    begun = time.monotonic()

    with plan_claimed_by_a_worker(plan), transaction.atomic():
        run_for(plan, seconds=20)

    assert time.monotonic() - begun < 10
    assert (plan.state, plans.progress(plan)["discarded"]) == ("running", 0)


@pytest.mark.postgres
def test_a_discard_waits_for_nobody_and_comes_back_for_what_a_handler_holds(bus, fault):
    park(bus, 2)
    held = DeadLetter.objects.order_by("pk").first()
    plan = started()

    handler = connections.create_connection("default")
    handler.set_autocommit(False)
    with handler.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM eventbus_inboxrecord WHERE message_id = %s FOR UPDATE", [held.message_id]
        )
    bus.relay()
    assert plans.progress(plan) == {"pending": 1, "discarded": 1, "skipped": 0}
    handler.close()

    bus.relay()
    assert plans.progress(plan) == {"pending": 0, "discarded": 2, "skipped": 0}


def test_what_is_parked_after_the_selection_was_frozen_is_not_discarded(bus, fault):
    park(bus, 1)
    seen = Selection.from_query(
        f"as_of={timezone.now().isoformat()}~{bus.letter.pk}".replace("+", "%2B")
    )
    park(bus, 1)

    assert discard_selected(seen, reason="x", **WHO) == 1
    assert states() == ["discarded", "open"]


def test_many_need_a_reason(bus, fault, monkeypatch):
    monkeypatch.setattr(plans, "REASON_ABOVE", 1)
    park(bus, 2)

    with pytest.raises(BadPlan, match="A reason is required"):
        discard_selected(ALL, reason="", **WHO)

    assert states() == ["open"] * 2


def test_what_is_on_its_way_is_not_discarded(bus, fault):
    park(bus, 2)
    first, second = DeadLetter.objects.order_by("pk")
    redrive([first.pk], **WHO)

    assert discard([first.pk, second.pk], reason="x", **WHO) == 1
    assert states() == ["discarded", "redriving"]
    assert discard([], reason="x", **WHO) == 0


def test_what_was_restored_can_be_re_driven_and_heals(bus, fault):
    park(bus, 1)
    discard_selected(ALL, reason="mistake", **WHO)

    assert restore_selected(ALL, reason="needed after all", **WHO) == 1
    assert (bus.letter.state, bus.letter.note, bus.letter.closed_at) == ("open", "", None)
    fault.is_mended = True
    redrive([bus.letter.pk], **WHO)
    bus.drain()

    assert bus.letter.state == "healed"
    for verb in ("restore", "restored"):
        assert AuditEntry.objects.filter(verb=verb, count=1).exists()
    assert plans.progress(Plan.objects.get(action="restore"))["restored"] == 1


def test_the_audit_tells_what_came_of_a_re_drive(bus, fault):
    park(bus, 2)
    first, second = DeadLetter.objects.order_by("pk").values_list("pk", flat=True)
    redrive([first], **WHO)

    assert redrive([first, second], **WHO) == 1

    asked, done = AuditEntry.objects.order_by("pk")[2:]
    assert (asked.verb, asked.by, asked.count) == ("redrive", "ada", 2)
    assert (done.verb, done.by, done.count) == ("redrove", "ada", 1)
    assert done.outcome == {"sent": 1, "left": 1}
    assert done.filter == asked.filter == f"id={first}%2C{second}"


def test_what_is_ignored_is_out_of_sight_until_then(bus, fault):
    park(bus, 2)
    soon = timezone.now() + timedelta(hours=1)
    first = DeadLetter.objects.order_by("pk").first()

    assert ignore_selected(Selection.of_ids([first.pk]), soon, reason="known", **WHO) == 1

    assert list(matching(Selection.from_words(["ignored=yes"]), "default")) == [first]
    assert first not in matching(Selection.from_words(["ignored=no"]), "default")
    DeadLetter.objects.update(ignored_until=timezone.now() - timedelta(seconds=1))
    assert matching(Selection.from_words(["ignored=no"]), "default").count() == 2


@pytest.mark.parametrize("year", [1, 9999])
def test_nothing_is_ignored_until_the_end_of_the_calendar(bus, fault, year):
    park(bus, 1)
    until = datetime(year, 12, 31, tzinfo=UTC)

    with pytest.raises(ValueError, match="the latest time is 9998-12-31 23:59"):
        ignore_selected(ALL, until, reason="for ever", **WHO)

    assert bus.letter.ignored_until is None
    assert not AuditEntry.objects.exists()


@contextmanager
def held_by_a_handler(letter):
    """Let another connection hold *letter*, as a handler that runs for it does."""
    held, done = threading.Event(), threading.Event()

    def hold():
        try:
            with transaction.atomic():
                DeadLetter.objects.select_for_update().get(pk=letter.pk)
                held.set()
                done.wait(20)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(hold)
        try:
            assert held.wait(20)
            yield
        finally:
            done.set()
        holding.result()


@pytest.mark.postgres
def test_ignoring_does_not_wait_for_a_handler_and_tells_what_it_left():
    under_way, free = many(2)
    soon = timezone.now() + timedelta(hours=1)

    with held_by_a_handler(under_way), transaction.atomic():
        connection.cursor().execute("SET LOCAL lock_timeout = '1s'")
        assert ignore_selected(ALL, soon, reason="known", **WHO) == 1

    assert list(matching(Selection.from_words(["ignored=yes"]), "default")) == [free]
    entry = AuditEntry.objects.get()
    assert (entry.count, entry.outcome) == (1, {"until": soon.isoformat(), "left": 1})


def test_what_is_ignored_still_counts_in_its_group_and_moves_with_it(bus, fault):
    park(bus, 2)
    first = DeadLetter.objects.order_by("pk").first()
    soon = timezone.now() + timedelta(hours=1)
    ignore_selected(Selection.of_ids([first.pk]), soon, reason="known", **WHO)

    (group,), _ = groups(ALL, using="default", span=timedelta(days=1))

    assert group.count == 2
    assert dry_run(group.selection, using="default").count == 2
