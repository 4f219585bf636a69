"""Freezing a selection has each dead letter on one side, and keeps nobody waiting."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial

import pytest
from django.db import connection, transaction
from django.utils import timezone

from django_eventbus.dead_letters.parking import ParkingCause, park
from django_eventbus.dead_letters.query import freeze, matching
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.dead_letters.snapshot import Snapshot, uncommitted_in
from django_eventbus.events.message import Message, uuid7
from django_eventbus.models import DeadLetter
from tests.support.tables import table

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

CAUSE = ParkingCause(kind="failed", error_type="ValueError", error="broken")


def park_one(message_id=""):
    message = Message(id=message_id or str(uuid7()), type="order.placed", body=b"{}")
    return park(message, CAUSE, subscription="charge", queue="orders", using="default")


def frozen_now():
    return freeze(Selection(), "default")


def ids_in(frozen):
    return set(matching(frozen, "default").values_list("message_id", flat=True))


def wait_at_most_50_ms():
    """Fail the statements of this connection that wait longer than that for a lock."""
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '50ms'")


@contextmanager
def in_another_thread(work):
    """Run *work* on a connection of its own; yield its future."""

    def run():
        try:
            return work()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(run)


@contextmanager
def open_transaction(work):
    """Do *work* in a transaction of another connection, which ends with the block."""
    may_commit, is_done = threading.Event(), threading.Event()

    def run():
        with transaction.atomic():
            work()
            is_done.set()
            assert may_commit.wait(20)

    with in_another_thread(run) as running:
        assert is_done.wait(20)
        yield
        may_commit.set()
        running.result(20)


def test_parking_does_not_wait_for_a_selection_that_is_frozen():
    park_one("m-0")

    def parking():
        wait_at_most_50_ms()
        return [park_one(f"m-{number}").pk for number in range(1, 201)]

    # In a transaction that stays open: whatever lock freezing takes is held all the time.
    with transaction.atomic():
        frozen = frozen_now()
        assert ids_in(frozen) == {"m-0"}
        with in_another_thread(parking) as parked:
            assert len(parked.result(60)) == 200
        assert ids_in(frozen) == {"m-0"}


def test_freezing_does_not_wait_for_what_is_being_parked_and_leaves_it_out():
    park_one("before")
    wait_at_most_50_ms()

    with open_transaction(lambda: park_one("open")):
        newest_is_open = frozen_now()
        park_one("after")
        newest_has_ended = frozen_now()

    assert ids_in(newest_is_open) == {"before"}
    assert ids_in(newest_has_ended) == {"before", "after"}
    assert ids_in(frozen_now()) == {"before", "open", "after"}


def test_what_is_being_parked_again_while_a_selection_is_frozen_is_not_in_it():
    park_one("m-1")
    park_one("m-2")

    with open_transaction(lambda: park_again("m-1")):
        newest_is_open = frozen_now()
        park_one("m-3")
        newest_has_ended = frozen_now()

    assert ids_in(newest_is_open) == {"m-2"}
    assert ids_in(newest_has_ended) == {"m-2", "m-3"}


def test_what_a_reader_saw_is_what_a_frozen_selection_holds_while_workers_park_200():
    park_one("m-0")

    def parking(worker):
        wait_at_most_50_ms()
        for number in range(50):
            # Held open for a moment, in which others commit: as in a consumer's transaction.
            with transaction.atomic():
                park_one(f"m-{worker}-{number}")
                DeadLetter.objects.filter(message_id="m-0").exists()

    seen = []
    with ExitStack() as stack:
        workers = [
            stack.enter_context(in_another_thread(partial(parking, each))) for each in "abcd"
        ]
        while not all(each.done() for each in workers):
            frozen = frozen_now()
            seen.append((frozen, ids_in(frozen)))
        for each in workers:
            each.result()

    assert DeadLetter.objects.count() == 201
    assert len(seen) > 10
    assert [ids_in(frozen) for frozen, _ in seen] == [ids for _, ids in seen]
    assert len(ids_in(frozen_now())) == 201


def test_what_a_transaction_has_parked_itself_is_in_what_it_freezes():
    with transaction.atomic():
        park_one("mine")

        assert ids_in(frozen_now()) == {"mine"}


def test_a_dead_letter_of_a_restored_database_is_seen_whatever_its_transaction():
    letter = park_one("restored")
    taken = frozen_now().snapshot
    long_ago = taken.at - timedelta(hours=2)
    DeadLetter.objects.filter(pk=letter.pk).update(
        parked_at=long_ago, parked_xid=taken.uncommitted[-1][0]
    )

    assert ids_in(frozen_now()) == {"restored"}


AHEAD = 1_000_000


@table(
    ("snapshot", "own", "ranges"),
    [
        ("100:100:", 0, [(100, 100 + AHEAD)]),
        ("90:100:90,95", 0, [(90, 90), (95, 95), (100, 100 + AHEAD)]),
        ("90:100:90", 97, [(90, 90), (100, 100 + AHEAD)]),
        ("90:100:90", 100, [(90, 90), (101, 100 + AHEAD)]),
        ("90:100:90", 102, [(90, 90), (100, 101), (103, 100 + AHEAD)]),
    ],
)
def test_transactions_that_may_be_open_are_read_from_a_snapshot(snapshot, own, ranges):
    assert list(uncommitted_in(snapshot, own)) == ranges


def test_a_snapshot_of_many_transactions_is_short_and_reads_back():
    opened = list(range(1000, 3000, 2))
    ranges = tuple(uncommitted_in(f"1000:3000:{','.join(map(str, opened))}", 2001))
    snapshot = Snapshot(at=timezone.now(), highest=7, uncommitted=ranges)

    assert len(ranges) <= 31
    assert ranges[0] == (1000, 1000)
    assert all(any(first <= xid <= last for first, last in ranges) for xid in opened)
    assert Snapshot.read(str(snapshot)) == snapshot


def park_again(message_id):
    DeadLetter.objects.filter(message_id=message_id).update(state="redriving", round=1)
    headers = {"x-redriven-count": 1}
    again = Message(id=message_id, type="order.placed", body=b"{}", headers=headers)
    park(again, CAUSE, subscription="charge", queue="orders", using="default")


def on_a_host_that_is(monkeypatch, hours):
    real = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: real() + timedelta(hours=hours))


@pytest.mark.parametrize("hours", [-1, 1])
def test_what_is_parked_again_after_a_selection_was_frozen_is_not_in_it_whatever_the_clock_of_its_host_says(
    monkeypatch, hours
):
    park_one("m-1")
    frozen = freeze(Selection(), "default")

    on_a_host_that_is(monkeypatch, hours)
    park_again("m-1")

    assert DeadLetter.objects.get().state == "open"
    assert not matching(frozen, "default").exists()


def test_what_was_parked_before_a_selection_was_frozen_is_in_it_whatever_the_clock_of_the_page_says(
    monkeypatch,
):
    park_one("m-1")
    park_one("m-2")
    with monkeypatch.context() as patched:
        on_a_host_that_is(patched, 1)
        frozen = frozen_now()

    park_again("m-2")

    assert ids_in(frozen) == {"m-1"}
