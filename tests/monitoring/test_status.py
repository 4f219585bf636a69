"""The status: its values, the problems that follow from them, and the command."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_eventbus import publish, subscribe
from django_eventbus.conf import conf
from django_eventbus.management.status_output import as_json, as_text
from django_eventbus.models import DeadLetter, Outage, OutboxEvent, Queue, Throughput, Worker
from django_eventbus.monitoring.problems import number, problems, summary
from django_eventbus.monitoring.status import read_status
from django_eventbus.monitoring.status_values import (
    COUNT_LIMIT,
    DeadLetterStatus,
    OutboxStatus,
    PlanStatus,
    QueueStatus,
    Status,
    WorkerStatus,
    throughput_buckets,
)
from tests.end_to_end.oracle import FAST
from tests.support.helpers import eventually
from tests.support.tables import table

NOW = datetime(2026, 11, 17, 12, 34, 56, tzinfo=UTC)
MINUTE = timedelta(minutes=1)

CALM_OUTBOX = OutboxStatus(ready=0, oldest_ready_at=None, scheduled=9, unroutable=0, failed=0)
CALM_LETTERS = DeadLetterStatus(open=0, new_in_hour=0, new_in_day=0, redriving=4)
CALM_QUEUE = QueueStatus(
    name="shop.orders",
    is_measured=True,
    messages=70,
    consumers=1,
    in_tiers=3,
    dlq="shop.orders.dlq",
    dlq_messages=0,
    measured_at=NOW,
)
RELAY = WorkerStatus(id="1", kind="relay", host="a", pid=1, version="", started_at=NOW, seen_at=NOW)
PLAN = PlanStatus(id=1, action="redrive", state="running", by="ada", note="", total=9, settled=3)
CALM = Status(
    at=NOW,
    outbox=CALM_OUTBOX,
    dead_letters=CALM_LETTERS,
    queues=(CALM_QUEUE,),
    workers=(RELAY,),
)


def outbox(**changes) -> Status:
    return replace(CALM, outbox=replace(CALM_OUTBOX, **changes))


def queue(**changes) -> Status:
    return replace(CALM, queues=(replace(CALM_QUEUE, **changes),))


def worker(**changes) -> Status:
    return replace(CALM, workers=(replace(RELAY, **changes),))


def letters(**changes) -> Status:
    return replace(CALM, dead_letters=replace(CALM_LETTERS, **changes))


def late(**changes) -> Status:
    return replace(outbox(ready=5, oldest_ready_at=NOW - 3 * MINUTE), **changes)


@table(
    ("status", "codes"),
    [
        (CALM, []),
        (outbox(ready=5000, oldest_ready_at=NOW - timedelta(seconds=59)), []),
        (late(), ["lag"]),
        (late(workers=()), ["lag"]),
        (outbox(unroutable=1), ["unroutable"]),
        (outbox(failed=1), ["failed"]),
        (letters(open=1), ["dead_letters"]),
        (worker(is_live=False), []),
        (worker(outage="connection", outage_since=NOW - MINUTE), ["outage"]),
        (worker(outage="connection", outage_since=NOW - MINUTE, is_live=False), []),
        (replace(CALM, plans=(PLAN,)), []),
        (replace(CALM, plans=(PLAN,), workers=()), ["no_relay"]),
        (replace(worker(kind="consumer"), plans=(PLAN,)), ["no_relay"]),
        (replace(worker(is_live=False), plans=(PLAN,)), ["no_relay"]),
        (replace(CALM, plans=(replace(PLAN, state="paused"),), workers=()), ["paused"]),
        (replace(CALM, plans=(replace(PLAN, state="paused"),)), ["paused"]),
        (queue(consumers=0), ["unconsumed"]),
        (queue(messages=None, is_measured=False), ["missing"]),
        (queue(trouble="The broker does not answer.", is_measured=False), ["trouble"]),
        (queue(messages=None, measured_at=None, is_measured=False), []),
        (queue(dlq_messages=3), ["dlq"]),
        (queue(dlq_messages=3, is_collected=True), []),
        (
            replace(
                outbox(unroutable=2, failed=1),
                queues=(
                    replace(CALM_QUEUE, consumers=0, dlq_messages=3),
                    replace(CALM_QUEUE, messages=None),
                ),
                plans=(PLAN, replace(PLAN, state="paused")),
                workers=(replace(RELAY, kind="consumer", outage="connection", outage_since=NOW),),
                dead_letters=replace(CALM_LETTERS, open=1),
            ),
            [
                "outage",
                "unconsumed",
                "no_relay",
                "missing",
                "unroutable",
                "failed",
                "paused",
                "dead_letters",
                "dlq",
            ],
        ),
    ],
)
def test_the_problems_follow_from_the_status(status, codes):
    assert [problem.code for problem in problems(status)] == codes


def test_one_sentence_names_the_queues_without_a_consumer():
    queues = [replace(CALM_QUEUE, name=f"q{number}", consumers=0) for number in range(9)]

    (problem,) = problems(replace(CALM, queues=tuple(queues)))

    assert problem.text == "9 queues have no consumer (q0, q1, q2, q3, q4, …)."
    assert problem.about == {"queues": [each.name for each in queues]}


def test_the_first_line_says_how_many_problems_there_are():
    assert summary(problems(CALM)) == "There are no problems."
    assert summary(problems(outbox(failed=1))) == "There is 1 problem:"
    assert summary(problems(outbox(failed=1, unroutable=1))) == "There are 2 problems:"


def test_plans_that_do_not_proceed_are_named_in_one_sentence():
    stopped = replace(CALM, workers=(), plans=(PLAN,))
    (one,) = problems(stopped)
    (two,) = problems(replace(stopped, plans=(replace(PLAN, id=12), PLAN)))

    assert one.text == "Plan 1 does not proceed: no relay is running."
    assert one.about == {"plan": 1}
    assert two.text == "2 plans do not proceed (12, 1): no relay is running."
    assert two.about == {"plans": [12, 1]}


def test_each_problem_says_how_much_and_for_how_long():
    (lag,) = problems(late(workers=()))
    (waiting,) = problems(worker(outage="database", outage_since=NOW - timedelta(hours=3)))
    (many,) = problems(letters(open=COUNT_LIMIT + 1, new_in_hour=12))

    assert lag.text == "5 events wait in the outbox, the oldest for 3m."
    assert lag.remedy.startswith("No relay is running: start relay_events")
    assert waiting.text == "1 worker has waited for a server for 3h (database)."
    assert many.text == "10,000+ dead letters wait for a decision (12 new in the last hour)."
    assert number(COUNT_LIMIT) == "10,000"


def test_minutes_are_added_up_into_spans_that_end_now():
    counts = {"published": 1, "handled": 2, "retried": 3, "parked": 4}
    minutes = {NOW.replace(minute=minute, second=0): counts for minute in (5, 14, 15, 34)}

    quarters = throughput_buckets(minutes, until=NOW, step=15 * MINUTE, count=3)

    assert [each.start.minute for each in quarters] == [0, 15, 30]
    assert [each.handled for each in quarters] == [4, 2, 2]
    assert [each.parked for each in quarters] == [8, 4, 4]
    assert len(throughput_buckets({}, until=NOW, step=MINUTE, count=60)) == 60


def row(state: str, age: timedelta = timedelta(), **values) -> OutboxEvent:
    then = timezone.now() - age
    return OutboxEvent.objects.create(
        state=state, type="a.b", body=b"{}", created_at=then, **values
    )


@pytest.mark.django_db
def test_what_is_ignored_for_now_is_counted_apart(no_subscriptions):
    for until in (None, timezone.now() - MINUTE, timezone.now() + MINUTE):
        DeadLetter.objects.create(
            kind="failed", message_id=str(until), body=b"", queue="q", ignored_until=until
        )

    found = read_status()

    assert (found.dead_letters.open, found.dead_letters.ignored) == (2, 1)
    assert found.dead_letters.new_in_hour == 2
    assert "Dead letters: 2 open, 2 new in the last hour" in "\n".join(as_text(found))
    assert "1 ignored for now" in "\n".join(as_text(found))


@pytest.mark.django_db
def test_the_oldest_ready_row_is_found_in_any_shard():
    row("ready", age=MINUTE, shard=0)
    oldest = row("ready", age=5 * MINUTE, shard=3)
    row("published", age=9 * MINUTE)
    row("unroutable")
    row("scheduled", due_at=timezone.now())

    found = read_status().outbox

    assert found.oldest_ready_at == oldest.created_at
    assert (found.ready, found.scheduled, found.unroutable, found.failed) == (2, 1, 1, 0)


@pytest.mark.django_db
def test_what_is_known_of_queues_workers_and_outages_is_shown(no_subscriptions):
    subscribe("order.*", queue="billing")(print)
    name, now = conf.queue("billing"), timezone.now()
    Queue.objects.create(
        name=name, messages=5, consumers=2, tiers={"30s": 1, "5m": 2}, measured_at=now
    )
    Queue.objects.create(name="of.another.service", messages=1, measured_at=now)
    live = Worker.objects.create(kind="both", host="a", pid=1, queues=[name])
    silent = {"seen_at": now - 2 * MINUTE, "expected_at": now - MINUTE}
    Worker.objects.create(kind="relay", host="b", pid=2, **silent)
    Worker.objects.create(kind="relay", host="c", pid=3, seen_at=now - timedelta(hours=2))
    Outage.objects.create(worker_id=live.pk, kind="blocked", part="relay", began_at=now)
    Throughput.objects.create(worker_id=live.pk, minute=now.replace(second=0), handled=7)

    status = read_status()

    (found,) = status.queues
    assert (found.messages, found.consumers, found.in_tiers, found.is_measured) == (5, 2, 3, True)
    assert [(each.host, each.is_live) for each in status.workers] == [("a", True), ("b", False)]
    assert [each.is_lasting for each in status.outages] == [True]
    assert sum(each.handled for each in status.hour) == 7
    assert sum(each.handled for each in status.day) == 7


@pytest.mark.django_db
def test_a_figure_that_is_a_minute_old_is_no_longer_trusted(no_subscriptions):
    subscribe("order.*", queue="billing")(print)
    Queue.objects.create(
        name=conf.queue("billing"),
        messages=5,
        consumers=2,
        measured_at=timezone.now() - 2 * MINUTE,
    )

    (found,) = read_status().queues

    assert (found.is_measured, found.consumers) == (False, 0)


@pytest.mark.postgres
@pytest.mark.django_db
def test_a_look_at_the_status_scans_no_table_of_messages():
    """The planner is told not to: with a plan that needs no scan, there is none."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
    with CaptureQueriesContext(
        connection,
    ) as captured:
        read_status()

    for query in captured:
        if "eventbus_outboxevent" in query["sql"] or "eventbus_deadletter" in query["sql"]:
            with connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN {query['sql']}")
                plan = "\n".join(line for (line,) in cursor.fetchall())
            assert "Seq Scan" not in plan, f"{query['sql']}\n{plan}"


@pytest.mark.django_db
def test_the_figures_come_as_json_and_as_text(no_subscriptions):
    subscribe("order.*", queue="billing")(print)
    DeadLetter.objects.create(queue="q", message_id="1", kind="failed", body=b"")
    Worker.objects.create(kind="both", host="a-host", pid=4711)

    facts = json.loads(json.dumps(as_json(read_status())))
    said = "\n".join(as_text(read_status()))

    assert [each["code"] for each in facts["problems"]] == ["unconsumed", "dead_letters"]
    assert facts["dead_letters"]["open"] == 1
    assert len(facts["hour"]) == 60
    assert said.startswith("There are 2 problems:\n- The queue ")
    for part in (conf.queue("billing"), "a-host", "4711", "working", "Last hour: 0 published"):
        assert part in said


@pytest.mark.django_db(transaction=True)
def test_the_status_of_a_bus_at_work_has_a_worker_and_no_problems(manage):
    worker = manage("consume_events", "--with-relay", env=FAST)
    publish("count.up", {})

    def calm_facts():
        facts = json.loads(manage.run("eventbus_status", "--json", env=FAST).output)
        is_measured = all(each["is_measured"] for each in facts["queues"])
        return facts if facts["workers"] and is_measured else None

    found = eventually(calm_facts, timeout=30)

    assert [each["pid"] for each in found["workers"]] == [worker.pid]
    assert found["problems"] == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_watching_shows_it_again_and_ends_well(manage, number):
    watch = manage("eventbus_status", "--watch", "--json", env=FAST)
    eventually(lambda: watch.output.count("\n") >= 2, timeout=20)

    watch.process.send_signal(number)

    assert watch.wait() == 0
    assert all(json.loads(line)["outbox"] for line in watch.output.splitlines()[:2])


def said_by(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def test_subscriptions_are_listed_by_queue(no_subscriptions):
    subscribe("order.*", queue="billing", name="charge", retry=["30s", "5m"])(print)
    subscribe("order.placed", queue="billing", name="bill", tries=1, retry=[])(print)

    (one, two) = json.loads(said_by("eventbus_subscriptions", "--json"))

    assert (one["name"], one["pattern"], one["tries"], one["delays"]) == (
        "bill", "order.placed", 1, [],
    )  # fmt: skip
    assert (two["name"], two["queue"], two["delays"]) == (
        "charge", conf.queue("billing"), ["30s", "5m"],
    )  # fmt: skip
    assert said_by("eventbus_subscriptions").splitlines() == [
        conf.queue("billing"),
        "  bill    order.placed, 1 try, delays none",
        "  charge  order.*, 3 tries, delays 30s, 5m",
    ]
