"""A cut has each dead letter on one side, however its parking and the cut overlap."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone

from django_eventbus import cuts
from django_eventbus.cuts import make_cut
from django_eventbus.dead_letters import Cause, park
from django_eventbus.matching import freeze, letters_of
from django_eventbus.messages import Message, uuid7
from django_eventbus.models import DeadLetter
from django_eventbus.selections import Selection
from tests.helpers import eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

CAUSE = Cause(kind="failed", error_type="ValueError", error="broken")
WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


def park_one(message_id=""):
    message = Message(id=message_id or str(uuid7()), type="order.placed", body=b"{}")
    return park(message, CAUSE, subscription="charge", queue="orders", using="default")


def is_somebody_waiting():
    with connection.cursor() as cursor:
        cursor.execute(WAITING)
        return cursor.fetchone()[0] > 0


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


def test_a_cut_waits_for_what_is_being_parked_and_has_it():
    # Not the first of its group: who parks another of a new group waits for that one.
    earlier = park_one()
    may_commit = threading.Event()
    is_parked = threading.Event()

    def parking():
        with transaction.atomic():
            letter = park_one()
            is_parked.set()
            assert may_commit.wait(20)
        return letter

    with in_another_thread(parking) as parked:
        assert is_parked.wait(20)
        later = park_one()
        with in_another_thread(lambda: freeze(Selection(), "default")) as cut:
            eventually(is_somebody_waiting)
            may_commit.set()
            frozen = cut.result(20)

    assert set(letters_of(frozen, "default")) == {earlier, parked.result(20), later}


def park_again(message_id):
    DeadLetter.objects.filter(message_id=message_id).update(state="redriving", round=1)
    headers = {"x-redriven-count": 1}
    again = Message(id=message_id, type="order.placed", body=b"{}", headers=headers)
    park(again, CAUSE, subscription="charge", queue="orders", using="default")


def on_a_host_that_is(monkeypatch, hours):
    real = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: real() + timedelta(hours=hours))


@pytest.mark.parametrize("hours", [-1, 1])
def test_what_is_parked_again_after_a_cut_is_not_in_it_whatever_the_clock_of_its_host_says(
    monkeypatch, hours
):
    park_one("m-1")
    frozen = freeze(Selection(), "default")

    on_a_host_that_is(monkeypatch, hours)
    park_again("m-1")

    assert DeadLetter.objects.get().state == "open"
    assert not letters_of(frozen, "default").exists()


@pytest.mark.parametrize("longest", ["50ms", "1ms"])
def test_what_was_parked_before_a_cut_is_in_it_whatever_the_clock_of_the_page_says(
    monkeypatch, longest
):
    park_one("m-1")
    park_one("m-2")
    monkeypatch.setattr(cuts, "_LONGEST", longest)
    with monkeypatch.context() as patched:
        on_a_host_that_is(patched, 1)
        frozen = freeze(Selection(), "default")

    park_again("m-2")

    assert [letter.message_id for letter in letters_of(frozen, "default")] == ["m-1"]


def test_a_cut_in_a_transaction_keeps_nobody_from_parking():
    with transaction.atomic():
        make_cut("default")
        with in_another_thread(park_one) as parked:
            assert parked.result(20).pk
        with connection.cursor() as cursor:
            cursor.execute("SHOW lock_timeout")
            assert cursor.fetchone() == ("0",)


def test_a_page_does_not_wait_for_ever_for_a_parking_that_hangs(monkeypatch):
    park_one("m-1")
    monkeypatch.setattr(cuts, "_LONGEST", "10ms")
    may_commit, is_parked = threading.Event(), threading.Event()

    def hanging():
        with transaction.atomic():
            park_one()
            is_parked.set()
            assert may_commit.wait(20)

    with in_another_thread(hanging) as parking:
        assert is_parked.wait(20)
        on_a_host_that_is(monkeypatch, 1)
        frozen = freeze(Selection(), "default")
        may_commit.set()
        parking.result(20)

    # Without the lock it is the database's clock all the same.
    park_again("m-1")
    assert not letters_of(frozen, "default").exists()
