"""Pruning: only what is settled, old and needed by nothing; and the mark it leaves."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from itertools import count

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_eventbus import GiveUp, Skip, publish
from django_eventbus.events.message import NOT_BEFORE
from django_eventbus.models import (
    Attempt,
    DeadLetter,
    InboxMark,
    InboxRecord,
    Outage,
    OutboxEvent,
    Plan,
    PlannedLetter,
    Queue,
    QueuedMessage,
    Throughput,
    Worker,
)
from django_eventbus.pruning import count_prunable, prune
from django_eventbus.redrive.discards import discard
from django_eventbus.redrive.letters import redrive
from django_eventbus.subscriptions.outcomes import Duplicate, Handled, Park
from tests.shop.models import Effect
from tests.support.tables import table

pytestmark = pytest.mark.both_databases

MONTH = timedelta(days=30)
WEEK = timedelta(days=7)
NOTHING = {
    "outbox events": 0,
    "dead letters": 0,
    "inbox records": 0,
    "attempts": 0,
    "planned letters": 0,
    "plans": 0,
    "workers": 0,
    "minutes of throughput": 0,
    "outages": 0,
    "broker requests": 0,
    "queues": 0,
}
numbers = count(1)


def ago(age: timedelta):
    return timezone.now() - age


def pruned(age: timedelta = WEEK, **options) -> dict[str, int]:
    return prune(ago(age), using="default", **options)


def event(state: str, age: timedelta = MONTH) -> OutboxEvent:
    then = ago(age)
    published_at = then if state == "published" else None
    return OutboxEvent.objects.create(
        state=state, type="a.b", body=b"{}", created_at=then, published_at=published_at
    )


def record(state: str, age: timedelta = MONTH, sent: timedelta | None = MONTH, **values):
    return InboxRecord.objects.create(
        **{"subscription": "s", "message_id": str(next(numbers)), **values},
        state=state,
        settled_at=ago(age),
        sent_at=sent and ago(sent),
    )


def letter(state: str, age: timedelta = MONTH, **values) -> DeadLetter:
    return DeadLetter.objects.create(
        **{"subscription": "s", "queue": "q", "message_id": str(next(numbers)), **values},
        kind="failed",
        body=b"",
        state=state,
        parked_at=ago(age),
        closed_at=ago(age) if state in ("healed", "discarded") else None,
    )


def attempt(message_id: str = "1", age: timedelta = MONTH) -> Attempt:
    return Attempt.objects.create(
        subscription="s", message_id=message_id, round=0, attempt=1, started_at=ago(age), duration=0
    )


@pytest.mark.django_db
@table(
    ("state", "age", "goes"),
    [
        ("published", MONTH, True),
        ("cancelled", MONTH, True),
        ("published", timedelta(days=1), False),
        ("cancelled", timedelta(days=1), False),
        ("ready", MONTH, False),
        ("scheduled", MONTH, False),
        ("unroutable", MONTH, False),
        ("failed", MONTH, False),
    ],
)
def test_an_outbox_row_goes_when_it_is_settled_and_old(state, age, goes):
    event(state, age)

    assert pruned() == {**NOTHING, "outbox events": int(goes)}
    assert OutboxEvent.objects.exists() is not goes


@pytest.mark.django_db
@table(
    ("state", "age", "goes"),
    [
        ("healed", MONTH, True),
        ("discarded", MONTH, True),
        ("healed", timedelta(days=1), False),
        ("open", MONTH, False),
        ("redriving", MONTH, False),
        ("unknown", MONTH, False),
    ],
)
def test_a_dead_letter_goes_when_it_is_closed_and_old(state, age, goes):
    letter(state, age)

    assert pruned() == {**NOTHING, "dead letters": int(goes)}
    assert DeadLetter.objects.exists() is not goes


@pytest.mark.django_db
@table(
    ("state", "age", "sent", "goes"),
    [
        ("handled", MONTH, MONTH, True),
        ("skipped", MONTH, MONTH, True),
        ("parked", MONTH, MONTH, True),
        ("handled", MONTH, None, True),
        ("handled", timedelta(days=1), MONTH, False),
        # the producer's clock runs ahead: a copy of it would not be too old yet
        ("handled", MONTH, timedelta(days=1), False),
        ("started", MONTH, MONTH, False),
        ("retrying", MONTH, MONTH, False),
        ("deferred", MONTH, MONTH, False),
    ],
)
def test_an_inbox_record_goes_when_it_is_settled_and_old_by_both_clocks(state, age, sent, goes):
    record(state, age, sent)

    assert pruned() == {**NOTHING, "inbox records": int(goes)}
    assert InboxRecord.objects.exists() is not goes


@pytest.mark.django_db
@table("state", ["open", "redriving", "unknown"])
def test_what_an_open_dead_letter_needs_is_kept(state):
    record("parked", message_id="m")
    attempt("m")
    letter(state, message_id="m")

    assert pruned() == NOTHING
    assert (InboxRecord.objects.count(), Attempt.objects.count()) == (1, 1)


@pytest.mark.django_db
def test_a_dead_letter_of_another_subscription_or_message_keeps_nothing():
    record("handled", message_id="m")
    letter("open", message_id="m", subscription="other")
    letter("open", message_id="n")

    assert pruned() == {**NOTHING, "inbox records": 1}


@pytest.mark.django_db
def test_a_closed_dead_letter_goes_with_its_record_and_attempts_in_one_run():
    record("handled", message_id="m")
    attempt("m")
    letter("healed", message_id="m")

    assert pruned() == {**NOTHING, "dead letters": 1, "inbox records": 1, "attempts": 1}


@pytest.mark.django_db
def test_attempts_go_with_their_record_and_never_before_it():
    record("retrying", message_id="waiting")
    attempt("waiting")
    record("handled", message_id="done")
    attempt("done")
    attempt("recent", age=timedelta(days=1))

    assert pruned() == {**NOTHING, "inbox records": 1, "attempts": 1}
    assert {each.message_id for each in Attempt.objects.all()} == {"waiting", "recent"}


def one_of_everything() -> None:
    for state in OutboxEvent.State:
        event(state)
    for state in InboxRecord.State:
        attempt(record(state).message_id)
    for state in DeadLetter.State:
        kept = letter(state)
        record("handled", message_id=kept.message_id)
        attempt(kept.message_id)


@pytest.mark.django_db
def test_what_old_workers_left_behind_goes():
    for age in (MONTH, timedelta(hours=1)):
        then = ago(age)
        worker = Worker.objects.create(kind="relay", pid=1, seen_at=then)
        Throughput.objects.create(worker_id=worker.pk, minute=then)
        Outage.objects.create(worker_id=worker.pk, kind="database", began_at=then)
        Queue.objects.create(name=str(age), measured_at=then)

    counts = pruned()

    gone = {"workers": 1, "minutes of throughput": 1, "outages": 1, "queues": 1}
    assert counts == {**NOTHING, **gone}
    assert all(table.objects.count() == 1 for table in (Worker, Throughput, Outage, Queue))


@pytest.mark.django_db
def test_a_dry_run_counts_what_would_go_and_removes_nothing():
    one_of_everything()
    tables = (OutboxEvent, InboxRecord, DeadLetter, Attempt)
    before = [table.objects.count() for table in tables]

    counts = count_prunable(ago(WEEK), using="default")

    assert [table.objects.count() for table in tables] == before
    assert InboxMark.objects.before() is None
    assert counts == pruned()
    assert counts == {
        **NOTHING,
        "outbox events": 2,
        "dead letters": 2,
        "inbox records": 5,
        "attempts": 5,
    }


@pytest.mark.django_db
@table("batch", [1, 2, 5, 100])
def test_rows_are_removed_in_batches_until_none_is_left(batch):
    for _ in range(5):
        event("published")
    kept = event("ready")

    with CaptureQueriesContext(connection) as queries:
        assert pruned(batch=batch)["outbox events"] == 5

    deletes = [q for q in queries if q["sql"].startswith("DELETE") and "outboxevent" in q["sql"]]
    assert len(deletes) == -(-5 // batch)
    assert list(OutboxEvent.objects.all()) == [kept]


@pytest.mark.django_db
def test_a_row_that_changes_while_it_is_being_removed_stays():
    def change_first(execute, sql, *args):
        if sql.startswith("DELETE"):
            OutboxEvent.objects.update(state="ready")
        return execute(sql, *args)

    event("published")

    with connection.execute_wrapper(change_first):
        assert pruned() == NOTHING
    assert OutboxEvent.objects.get().state == "ready"


@pytest.mark.django_db
def test_the_mark_moves_forward_only():
    pruned(age=WEEK)
    mark = InboxMark.objects.before()

    pruned(age=MONTH)
    assert InboxMark.objects.before() == mark
    pruned(age=timedelta(days=1))
    assert InboxMark.objects.before() > mark
    assert InboxMark.objects.count() == 1


# Through the bus


@pytest.fixture
def handled(bus):
    """Messages that a handler of everything has handled, and how often."""

    @bus.subscribe("#", name="s", retry=[])
    def handler(event):
        Effect.objects.create(event_id=event.meta.id, subscription="s")
        raise_if_told(event)

    return lambda: Effect.objects.count()


def raise_if_told(event) -> None:
    verdicts = {"give.up": GiveUp, "skip.it": Skip}
    if verdict := verdicts.get(event.type):
        raise verdict


def pass_weeks() -> None:
    """Let all that is recorded grow a month old."""
    InboxRecord.objects.update(settled_at=ago(MONTH), sent_at=ago(MONTH))
    OutboxEvent.objects.filter(state="published").update(published_at=ago(MONTH))


def test_an_old_copy_of_a_pruned_message_is_parked_as_too_old(bus, handled):
    message = bus.put(sent_at=ago(MONTH))
    assert bus.consume() == [Handled()]
    pass_weeks()
    assert pruned()["inbox records"] == 1

    bus.put(message)
    (outcome,) = bus.consume()

    assert isinstance(outcome, Park)
    assert (bus.letter.kind, bus.letter.message_id, handled()) == ("too_old", message.id, 1)


def test_an_old_copy_of_a_message_that_is_still_known_is_a_duplicate(bus, handled):
    message = bus.put(sent_at=ago(MONTH))
    bus.consume()
    pruned()

    bus.put(message)

    assert bus.consume() == [Duplicate(state="handled", attempt=1)]
    assert handled() == 1


def test_a_message_younger_than_the_mark_is_handled(bus, handled):
    pruned()

    for age in (timedelta(0), timedelta(days=1), WEEK - timedelta(minutes=1)):
        bus.put(sent_at=ago(age))

        assert bus.consume() == [Handled()]


def test_without_a_mark_an_old_message_is_handled(bus, handled):
    bus.put(sent_at=ago(MONTH))

    assert bus.consume() == [Handled()]


def test_a_delayed_event_that_was_due_lately_is_not_too_old(bus, handled):
    pruned()
    due = int(ago(timedelta(days=1)).timestamp() * 1000)

    bus.put(sent_at=ago(MONTH), headers={NOT_BEFORE: due})

    assert bus.consume() == [Handled()]


def test_a_delayed_event_that_was_due_long_ago_is_too_old(bus, handled):
    pruned()
    due = int(ago(WEEK * 2).timestamp() * 1000)

    bus.put(sent_at=ago(MONTH), headers={NOT_BEFORE: due})
    bus.consume()

    assert bus.letter.kind == "too_old"


def test_an_old_event_that_nobody_has_had_is_handled_when_it_is_published_again(bus, handled):
    publish("order.placed", {})
    OutboxEvent.objects.update(state="unroutable", sent_at=ago(MONTH), created_at=ago(MONTH))
    pruned()

    assert OutboxEvent.objects.publish_again() == 1
    bus.relay()

    assert bus.consume() == [Handled()]
    # When it was published is told as it was.
    assert InboxRecord.objects.get().sent_at < ago(WEEK)


def test_a_redelivered_old_message_is_settled_once_however_it_ended(bus, handled):
    sent = [bus.put(type=each, sent_at=ago(MONTH)) for each in ("give.up", "skip.it")]
    bus.drain()
    pruned()

    outcomes = []
    for message in sent:
        bus.put(message)
        outcomes += bus.consume()

    assert [outcome.state for outcome in outcomes] == ["parked", "skipped"]
    assert bus.letter.kind == "given_up"


def test_an_old_dead_letter_still_runs_when_it_is_redriven(bus, handled):
    pruned()
    bus.put(sent_at=ago(MONTH))
    bus.consume()
    assert (bus.letter.kind, handled()) == ("too_old", 0)

    redrive([bus.letter.pk], by="me", using="default")
    bus.drain()

    assert (bus.letter.state, handled()) == ("healed", 1)


def test_an_open_dead_letter_survives_pruning_and_heals_years_later(bus):
    broken = [True]

    @bus.subscribe("order.*", name="s", retry=[])
    def handler(event):
        if broken:
            raise ValueError("not yet")

    publish("order.placed")
    bus.drain()
    pass_weeks()
    DeadLetter.objects.update(parked_at=ago(MONTH), sent_at=ago(MONTH))
    Attempt.objects.update(started_at=ago(MONTH))

    assert pruned() == {**NOTHING, "outbox events": 1}
    broken.clear()
    redrive([bus.letter.pk], by="me", using="default")
    bus.drain()

    assert bus.letter.state == "healed"


def test_a_discarded_message_is_forgotten_in_time_and_then_too_old(bus, handled):
    message = bus.put(type="give.up", sent_at=ago(MONTH))
    bus.consume()
    discard([bus.letter.pk], reason="a test", by="me", using="default")
    pass_weeks()
    DeadLetter.objects.update(closed_at=ago(MONTH))
    Attempt.objects.update(started_at=ago(MONTH))
    assert pruned() == {**NOTHING, "dead letters": 1, "inbox records": 1, "attempts": 1}

    bus.put(message)
    bus.consume()

    assert bus.letter.kind == "too_old"


def test_nothing_of_the_queues_is_pruned(bus):
    bus.put(sent_at=ago(MONTH))
    QueuedMessage.objects.update(created_at=ago(MONTH), available_at=ago(MONTH))

    assert pruned() == NOTHING
    assert QueuedMessage.objects.count() == 1


# The command


def output(*args: str) -> str:
    written = StringIO()
    call_command("prune_events", *args, stdout=written)
    return written.getvalue()


@pytest.mark.django_db
def test_the_command_says_what_it_removed():
    event("published")

    assert output("--older-than", "7d").splitlines() == [
        "Removed 1 outbox event.",
        "Removed 0 dead letters.",
        "Removed 0 inbox records.",
        "Removed 0 attempts.",
        "Removed 0 planned letters.",
        "Removed 0 plans.",
        "Removed 0 workers.",
        "Removed 0 minutes of throughput.",
        "Removed 0 outages.",
        "Removed 0 broker requests.",
        "Removed 0 queues.",
    ]
    assert not OutboxEvent.objects.exists()


@pytest.mark.django_db
def test_the_command_on_trial_says_what_it_would_remove():
    event("published")

    assert "Would remove 1 outbox event." in output("--older-than", "7d", "--dry-run")
    assert OutboxEvent.objects.count() == 1


@pytest.mark.django_db
@table("more", [[], ["--dry-run"]])
def test_the_command_writes_its_counts_as_json(more):
    event("published")

    assert json.loads(output("--older-than", "7d", "--json", *more)) == {
        **NOTHING,
        "outbox events": 1,
    }


@table("age", ["soon", "7", "-7d", "59s", "0", "9999999999d", "9" * 400 + "d"])
def test_the_command_refuses_an_age_that_is_none_or_too_short(age):
    with pytest.raises(CommandError, match="argument --older-than"):
        output(f"--older-than={age}")


def test_the_command_refuses_to_run_without_an_age():
    with pytest.raises(CommandError, match="--older-than"):
        output()


def test_the_command_refuses_an_unknown_database_in_one_sentence():
    with pytest.raises(CommandError, match="nowhere"):
        output("--older-than", "7d", "--database", "nowhere")


@pytest.mark.django_db
def test_plans_go_with_their_rows_once_they_have_ended_or_were_never_started():
    values = {"rate": 1, "in_flight": 1, "fail_percent": 1}
    plans = [
        Plan.objects.create(state=state, created_at=ago(MONTH), ended_at=ended, **values)
        for state, ended in (("done", ago(MONTH)), ("planned", None), ("paused", None))
    ]
    for plan in plans:
        PlannedLetter.objects.create(plan=plan, dead_letter_id=1, round=0)

    assert pruned() == {**NOTHING, "planned letters": 2, "plans": 2}

    assert list(Plan.objects.values_list("state", flat=True)) == ["paused"]
    assert PlannedLetter.objects.count() == 1
