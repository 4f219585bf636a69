"""People who re-drive the same dead letters in the same moment: each moves once, and the rest is told."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from django.db import connection

from django_eventbus.dead_letters.selection import Selection
from django_eventbus.events.message import uuid7
from django_eventbus.exceptions import BadPlan
from django_eventbus.models import AuditEntry, DeadLetter, OutboxEvent, Plan, PlannedLetter
from django_eventbus.redrive import plans
from django_eventbus.redrive.discards import discard
from django_eventbus.redrive.letters import redrive
from django_eventbus.redrive.plans import Pace, make_plan
from django_eventbus.redrive.runner import step_plans

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

LETTERS = 300
AT_ONCE = Pace(canary=0, rate=1_000_000, in_flight=1_000)


@pytest.fixture
def ids(bus):
    """Dead letters that nobody handles while they are fought over."""
    rows = [
        DeadLetter(
            message_id=str(uuid7()), type="order.placed", body=b"{}", queue="orders", kind="failed"
        )
        for _ in range(LETTERS)
    ]
    return [letter.pk for letter in DeadLetter.objects.bulk_create(rows)]


def at_once(*works):
    """Run *works* from the same moment on, each on a connection of its own; return their results."""
    barrier = threading.Barrier(len(works), timeout=20)

    def run(work):
        try:
            connection.ensure_connection()
            barrier.wait()
            return work()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(works)) as pool:
        return [each.result(timeout=60) for each in [pool.submit(run, work) for work in works]]


def planned(by):
    return make_plan(Selection(), by=by, reason="mended", using="default", pace=AT_ONCE)


def worker():
    while PlannedLetter.objects.filter(state="pending").exists():
        step_plans("default")


def reasons(**condition):
    rows = PlannedLetter.objects.filter(state="skipped", **condition)
    return {row.reason_text for row in rows}


def assert_each_moved_once(moved):
    sent = Counter(OutboxEvent.objects.values_list("message_id", flat=True))
    assert set(sent.values()) <= {1}
    assert len(sent) == moved
    assert DeadLetter.objects.filter(state="redriving", round=1).count() == moved


def test_two_plans_and_a_plain_re_drive_at_once_move_each_dead_letter_once(ids):
    first, second = at_once(partial(planned, "ada"), partial(planned, "bob"))
    for plan in (first, second):
        plans.start(plan.pk, by=plan.created_by, using="default")

    # From the other end, so that nobody comes first everywhere.
    plain = partial(redrive, ids[::-1], by="eve", using="default")
    moved, *_ = at_once(plain, worker, worker)

    assert_each_moved_once(LETTERS)
    states = Counter(PlannedLetter.objects.values_list("state", flat=True))
    assert states == {"sent": LETTERS - moved, "skipped": LETTERS + moved}
    assert reasons(plan=first) <= {f"{name} re-drove it in the meantime" for name in ("bob", "eve")}
    assert reasons(plan=second) <= {
        f"{name} re-drove it in the meantime" for name in ("ada", "eve")
    }


def test_a_discard_and_a_plan_at_once_are_of_one_mind_about_each_dead_letter(ids):
    plan = planned("ada")
    plans.start(plan.pk, by="ada", using="default")

    closing = partial(discard, ids, reason="obsolete", by="bob", using="default")
    closed, *_ = at_once(closing, worker, worker)

    assert DeadLetter.objects.filter(state="discarded", round=0).count() == closed
    assert_each_moved_once(LETTERS - closed)
    assert reasons(plan=plan) <= {"it was discarded in the meantime"}
    assert reasons(plan__action="discard") <= {"ada re-drove it in the meantime"}


def test_of_two_discards_at_once_each_dead_letter_is_closed_by_one(ids):
    closing = [partial(discard, ids, reason="x", by=name, using="default") for name in "ab"]

    closed = at_once(*closing)

    assert sum(closed) == LETTERS
    assert DeadLetter.objects.filter(state="discarded").count() == LETTERS


def test_of_two_people_who_start_a_plan_at_once_one_is_refused(ids):
    plan = planned("ada")

    def start(name):
        try:
            return plans.start(plan.pk, by=name, using="default").state
        except BadPlan as error:
            return str(error)

    told = at_once(partial(start, "ada"), partial(start, "bob"))

    assert sorted(told) == [f"Plan {plan.pk} is running and cannot be started.", "running"]
    assert AuditEntry.objects.filter(verb="start plan").count() == 1
    assert Plan.objects.get().state == "running"
