"""A plan killed at any point goes on: no dead letter is sent twice within it, none is forgotten."""

from __future__ import annotations

from collections import Counter

import psycopg
import pytest

from django_eventbus.conf import conf
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.events.message import uuid7
from django_eventbus.models import AuditEntry, DeadLetter, OutboxEvent, Plan, PlannedLetter
from django_eventbus.redrive import plans
from django_eventbus.redrive.plans import Pace, make_plan
from tests.end_to_end.oracle import FAST
from tests.end_to_end.private import PrivateProject
from tests.shop.models import Effect
from tests.support.helpers import eventually
from tests.support.kill_points import ARMED, CRASH_AT, CRASHED

pytestmark = pytest.mark.django_db(transaction=True)

KILLED = -9
LETTERS = 6
#: Two steps at least, so that the second of each point exists too.
PACE = Pace(canary=2, rate=1_000, in_flight=3, fail_percent=20, tries=1)

STEPS = [
    "eventbus.redrive.changed",
    "eventbus.redrive.written",
    "eventbus.plan_steps.sent",
    "eventbus.plan_steps.written",
    "eventbus.plan_steps.committed",
]


def dead_letters(number):
    """Write dead letters whose handler would succeed by now."""
    rows = [
        DeadLetter(
            message_id=str(uuid7()),
            type="count.up",
            body=b"{}",
            subscription="shop.count",
            queue=conf.queue("counts"),
            kind="failed",
            fingerprint="f",
        )
        for _ in range(number)
    ]
    return DeadLetter.objects.bulk_create(rows)


def worker(manage, *, kill_at=""):
    return manage("consume_events", "--with-relay", env=FAST, kill_at=kill_at, is_measured=False)


def is_done():
    return Plan.objects.get().state == "done"


@pytest.mark.parametrize("point", [*STEPS, *(f"{step}:2" for step in STEPS)])
def test_a_plan_killed_at_any_point_sends_each_dead_letter_once_and_forgets_none(manage, point):
    dead_letters(LETTERS)
    plan = make_plan(Selection(), by="ada", reason="", using="default", pace=PACE)
    plans.start(plan.pk, by="ada", using="default")

    assert worker(manage, kill_at=point).wait() == KILLED
    worker(manage)
    eventually(is_done, timeout=40)

    assert_each_healed_by_one_re_drive()


def assert_each_healed_by_one_re_drive():
    rows = PlannedLetter.objects.values_list("state", flat=True)
    assert Counter(rows) == {"healed": LETTERS}
    sent = Counter(OutboxEvent.objects.exclude(queue="").values_list("message_id", flat=True))
    assert set(sent.values()) == {1}
    assert len(sent) == LETTERS
    assert set(DeadLetter.objects.values_list("state", "round")) == {("healed", 1)}
    assert Effect.objects.count() == LETTERS


@pytest.mark.postgres
@pytest.mark.rabbitmq
@pytest.mark.parametrize("point", ["redrive.written", "plan_steps.committed", "rabbitmq.taken"])
def test_a_plan_killed_on_its_way_to_rabbitmq_sends_each_once_and_forgets_none(manage, amqp, point):
    dead_letters(LETTERS)
    plan = make_plan(Selection(), by="ada", reason="", using="default", pace=PACE)
    plans.start(plan.pk, by="ada", using="default")
    options = {"env": amqp.environment, "is_measured": False}

    killed = manage("consume_events", "--with-relay", kill_at=f"eventbus.{point}:2", **options)
    assert killed.wait() == KILLED
    manage("consume_events", "--with-relay", **options)
    eventually(is_done, timeout=40)

    assert_each_healed_by_one_re_drive()


def test_a_kill_while_a_plan_is_made_leaves_nothing_of_it(manage):
    dead_letters(2)
    script = (
        "from django_eventbus.redrive.plans import make_plan\n"
        "from django_eventbus.dead_letters.selection import Selection\n"
        "make_plan(Selection(), by='ada', reason='', using='default')"
    )

    assert manage("shell", "-c", script, kill_at="eventbus.plans.frozen").wait() == KILLED

    assert not Plan.objects.exists()
    assert not PlannedLetter.objects.exists()
    assert not AuditEntry.objects.exists()
    assert manage("shell", "-c", script).wait() == 0
    assert PlannedLetter.objects.count() == 2


def test_a_burst_ends_though_a_plan_waits_for_an_answer(manage):
    dead_letters(2)
    plan = make_plan(Selection(), by="ada", reason="", using="default", pace=PACE)
    plans.start(plan.pk, by="ada", using="default")

    # Of another queue than the one that they go to.
    burst = ("consume_events", "--queue", "acts", "--with-relay", "--burst")
    ended = manage.run(*burst, env=FAST, is_measured=False)

    assert ended.returncode == 0, ended.output
    assert plans.progress(plan)["sent"] == 2


def test_a_burst_carries_a_plan_to_its_end(manage):
    dead_letters(LETTERS)
    plan = make_plan(Selection(), by="ada", reason="", using="default", pace=PACE)
    plans.start(plan.pk, by="ada", using="default")

    ended = manage.run("consume_events", "--with-relay", "--burst", env=FAST, is_measured=False)

    assert ended.returncode == 0, ended.output
    assert is_done()
    assert_each_healed_by_one_re_drive()


CLOSING = ["plan_steps.sent", "plan_steps.written", "plan_steps.committed"]


@pytest.mark.parametrize("point", ["plans.frozen", *CLOSING])
def test_a_discard_killed_at_any_point_is_not_begun_or_goes_on_with_the_workers(manage, point):
    dead_letters(LETTERS)

    discard = ("discard_events", "--reason", "obsolete", "--yes")
    assert manage(*discard, kill_at=f"eventbus.{point}", env=FAST).wait() == KILLED
    if not Plan.objects.exists():
        assert not AuditEntry.objects.exists()
        assert manage(*discard, env=FAST).wait() == 0
    worker(manage)
    eventually(is_done, timeout=40)

    assert Counter(PlannedLetter.objects.values_list("state", flat=True)) == {"discarded": LETTERS}
    assert set(DeadLetter.objects.values_list("state", "note")) == {("discarded", "obsolete")}
    assert AuditEntry.objects.get(verb="discarded").count == LETTERS


#: From the plan's step over the relay to the handler, each is a moment for the server to die.
CRASHES = [
    *STEPS,
    "eventbus.relay.claimed",
    "eventbus.relay.confirmed",
    "eventbus.relay.marked",
    "eventbus.relay.committed",
    "eventbus.inbox.called",
    "eventbus.inbox.committed",
    "eventbus.plan_steps.written",
]
SCRIPT = f"""
from django_eventbus.redrive import plans
from django_eventbus.dead_letters.selection import Selection
from tests.end_to_end.test_plans import dead_letters
dead_letters({LETTERS * 10})
pace = plans.Pace(canary=5, rate=60, in_flight=10, fail_percent=20, tries=1)
plan = plans.make_plan(Selection(), by="ada", reason="mended", using="default", pace=pace)
plans.start(plan.pk, by="ada", using="default")
"""


@pytest.mark.postgres
def test_a_plan_goes_on_when_postgresql_crashes_at_any_of_its_points(manage, private_postgres):
    project = PrivateProject(manage, private_postgres)
    made = project.start("shell", "-c", SCRIPT)
    assert made.wait() == 0, made.output

    crashes = {CRASH_AT: " ".join(CRASHES), CRASHED: str(private_postgres.directory)}
    running = project.start("consume_events", "--with-relay", **crashes)
    for _ in CRASHES:
        (private_postgres.directory / ARMED).touch()
        private_postgres.await_death(timeout=30, message=lambda: running.output)
        private_postgres.start()
    eventually(
        lambda: project.count("eventbus_plannedletter WHERE state = 'healed'") == 60, timeout=60
    )

    assert running.output.count("Crashing the database at") == len(CRASHES)
    with psycopg.connect(private_postgres.url) as session:
        sent = session.execute(
            "SELECT count(*), count(DISTINCT message_id) FROM eventbus_outboxevent"
        ).fetchone()
        letters = session.execute(
            "SELECT DISTINCT state, round FROM eventbus_deadletter"
        ).fetchall()
    assert sent == (60, 60)
    assert letters == [("healed", 1)]
    assert len(set(project.effects())) == len(project.effects()) == 60
    running.terminate()
    assert running.wait() == 0
