"""Plans: what was seen is what moves, a few first, at a rate, and it stops by itself."""

from __future__ import annotations

import json
import re
import threading
import time
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone

from django_eventbus import Event
from django_eventbus.conf import conf
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.exceptions import AppendOnly, BadPlan
from django_eventbus.models import (
    AuditEntry,
    DeadLetter,
    InboxRecord,
    OutboxEvent,
    Plan,
    PlannedLetter,
)
from django_eventbus.models.reasons import PlanNote
from django_eventbus.outbox.relay import Relay
from django_eventbus.redrive import plans
from django_eventbus.redrive.discards import discard
from django_eventbus.redrive.dry_runs import dry_run
from django_eventbus.redrive.letters import mark_unanswered, redrive
from django_eventbus.redrive.plans import Pace, make_plan, progress
from django_eventbus.redrive.runner import step_plans
from django_eventbus.workers.crew import Crew
from django_eventbus.workers.loops import RelayLoop
from tests.shop.models import Effect
from tests.support.helpers import eventually
from tests.support.sessions import impatient, locked_by_another
from tests.support.tables import table

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]

ALL = Selection()
AT_ONCE = {"canary": 0, "rate": 1_000_000, "in_flight": 1_000}


class Fault:
    """A handler that fails for all but some payloads, until it is mended."""

    def __init__(self):
        self.is_mended = False

    def __call__(self, event):
        if not self.is_mended and not event.payload.get("good"):
            raise ValueError(f"no stock for {event.meta.id}")
        Effect.objects.create(event_id=event.meta.id, subscription="faulty")


@pytest.fixture
def fault(bus):
    fault = Fault()
    bus.subscribe("order.*", name="faulty", retry=[])(fault)
    return fault


def park(bus, number):
    """Let so many messages fail to the end."""
    for _ in range(number):
        bus.put()
    bus.drain()


def planned(pace=None, *, selection=ALL, reason="mended", by="ada"):
    values = {**AT_ONCE, **(pace or {})}
    plan = make_plan(selection, by=by, reason=reason, using="default", pace=Pace(**values))
    return plans.start(plan.pk, by=by, using="default")


def again(plan):
    return Plan.objects.get(pk=plan.pk)


def counts(plan):
    return {state: count for state, count in progress(plan).items() if count}


def test_a_plan_heals_everything_and_each_outcome_is_known(bus, fault):
    park(bus, 5)
    fault.is_mended = True

    plan = planned()
    bus.drain()
    bus.relay()

    assert counts(plan) == {"healed": 5}
    assert again(plan).state == "done"
    assert again(plan).ended_at
    assert Effect.objects.count() == 5
    assert set(DeadLetter.objects.values_list("state", flat=True)) == {"healed"}


def test_what_is_parked_after_the_plan_was_made_does_not_move(bus, fault):
    park(bus, 2)
    plan = make_plan(ALL, by="ada", reason="", using="default", pace=Pace(**AT_ONCE))
    park(bus, 3)
    fault.is_mended = True

    plans.start(plan.pk, by="ada", using="default")
    bus.drain()
    bus.relay()

    assert counts(plan) == {"healed": 2}
    assert DeadLetter.objects.filter(state="open").count() == 3


def test_nothing_moves_before_the_plan_is_started(bus, fault):
    park(bus, 1)

    plan = make_plan(ALL, by="ada", reason="", using="default")
    bus.drain()

    assert again(plan).state == "planned"
    assert bus.letter.state == "open"


def test_only_the_canary_goes_first_and_the_rest_when_it_has_healed(bus, fault):
    park(bus, 6)
    fault.is_mended = True
    plan = planned({"canary": 2})

    step_plans("default")
    assert (counts(plan), again(plan).state) == ({"pending": 4, "sent": 2}, "canary")
    step_plans("default")
    assert counts(plan) == {"pending": 4, "sent": 2}
    bus.drain()
    bus.relay()

    assert counts(plan) == {"healed": 6}
    assert again(plan).state == "done"


def test_a_canary_that_fails_pauses_the_plan_and_nothing_else_moves(bus, fault):
    park(bus, 6)

    plan = planned({"canary": 2})
    bus.drain()
    bus.relay()

    assert counts(plan) == {"pending": 4, "failed": 2}
    assert again(plan).state == "paused"
    assert again(plan).note_text == "Too many of the latest re-drives failed again: 2/2."
    assert PlannedLetter.objects.filter(state="failed").first().reason_text == "ValueError"


def test_a_paused_plan_goes_on_when_it_is_resumed(bus, fault):
    park(bus, 6)
    plan = planned({"canary": 2})
    bus.drain()
    bus.relay()
    fault.is_mended = True

    plans.resume(plan.pk, by="bob", using="default")
    bus.drain()
    bus.relay()

    assert counts(plan) == {"failed": 2, "healed": 4}
    assert again(plan).state == "done"


def test_what_came_of_a_plan_is_known_without_a_look_at_its_rows(bus, fault):
    park(bus, 3)
    fault.is_mended = True
    plan = planned()
    bus.drain()
    bus.relay()

    PlannedLetter.objects.all().delete()

    assert again(plan).total == 3
    assert progress(again(plan)) == {
        "pending": 0, "sent": 0, "healed": 3, "failed": 0, "skipped": 0, "unknown": 0,
    }  # fmt: skip


def test_after_a_canary_that_failed_another_one_goes_first(bus, fault):
    park(bus, 9)
    plan = planned({"canary": 2})
    bus.drain()
    bus.relay()

    plans.resume(plan.pk, by="bob", using="default")
    bus.drain()
    bus.relay()

    assert counts(plan) == {"pending": 5, "failed": 4}
    assert again(plan).state == "paused"


def test_a_canary_that_a_person_paused_goes_on_where_it_was(bus, fault):
    park(bus, 9)
    fault.is_mended = True
    plan = planned({"canary": 4, "in_flight": 2})
    step_plans("default")
    plans.pause(plan.pk, by="bob", using="default")
    bus.drain()

    plans.resume(plan.pk, by="bob", using="default")
    step_plans("default")

    assert (counts(plan), again(plan).state) == ({"healed": 2, "sent": 2, "pending": 5}, "canary")
    bus.drain()
    bus.relay()
    assert counts(plan) == {"healed": 9}


def test_what_was_under_way_when_it_paused_is_not_held_against_it_once_resumed(bus, fault):
    park(bus, 24)
    plan = planned({"in_flight": 24})
    step_plans("default")
    Plan.objects.get().pause_itself(PlanNote.ERROR, "ValueError")

    plans.resume(plan.pk, by="bob", using="default")
    bus.drain()
    bus.relay()

    assert counts(plan) == {"failed": 24}
    assert again(plan).state == "done"


def test_a_plan_that_cannot_go_on_is_paused_and_keeps_nobody_from_working(bus, fault, caplog):
    park(bus, 2)
    broken = planned({"canary": 1})
    # As if a newer release had made it.
    Plan.objects.filter(pk=broken.pk).update(action="melt")
    fault.is_mended = True
    whole = planned()

    bus.drain()
    bus.relay()

    assert again(broken).state == "paused"
    assert again(broken).note_text == (
        "The plan cannot continue: KeyError. The log of the worker has the details."
    )
    assert counts(whole) == {"healed": 2}
    assert f"Plan {broken.pk} cannot continue." in caplog.text
    assert AuditEntry.objects.filter(verb="plan paused", plan_id=broken.pk).count() == 1


@pytest.mark.postgres
def test_a_plan_whose_step_takes_too_long_is_paused_and_ends_no_relay(bus, fault):
    park(bus, 1)
    plan = planned()

    with locked_by_another(plan.planned.get()), impatient(500):
        bus.relay()

    assert again(plan).state == "paused"
    assert again(plan).note_text.startswith("The plan cannot continue: OperationalError.")


class OrderCoded(Event, type="order.coded"):
    code: str
    note: str = ""

    def __post_init__(self):
        if self.code != "ok":
            raise ValueError(f"there is no code {self.code}")


def test_what_a_payload_says_of_itself_stops_no_plan(bus):
    @bus.subscribe(OrderCoded, name="coded", retry=[])
    def coded(event):
        if not event.note:
            raise ValueError("no note")

    for code in ("\x00", "ok"):
        bus.put(type="order.coded", body=json.dumps({"code": code}).encode())
    bus.drain()
    made = make_plan(
        ALL, by="ada", reason="", using="default", pace=Pace(**AT_ONCE), patch={"note": "n"}
    )
    plans.start(made.pk, by="ada", using="default")

    bus.drain()
    bus.relay()

    assert counts(made) == {"skipped": 1, "healed": 1}
    assert "there is no code" in PlannedLetter.objects.get(state="skipped").reason_text


@table(
    ("name", "value"),
    [
        ("rate", 1e308),
        ("rate", float("inf")),
        ("rate", float("nan")),
        ("rate", 1e-12),
        ("rate", -1),
        ("canary", -1),
        ("canary", 10**20),
        ("in_flight", 0),
        ("in_flight", 10**11),
        ("fail_percent", 101),
        ("tries", 0),
        ("limit", 10**23),
    ],
)
def test_a_pace_that_no_worker_could_keep_is_refused(name, value):
    with pytest.raises(BadPlan, match=re.escape(f"{name}: {value} is ")):
        Pace(**{name: value})


def test_a_plan_pauses_itself_when_too_many_fail_again(bus, fault):
    park(bus, 30)

    plan = planned({"in_flight": 12})
    bus.drain()

    assert counts(plan) == {"pending": 18, "failed": 12}
    assert again(plan).state == "paused"


def test_a_few_failures_do_not_pause_a_plan(bus, fault):
    park(bus, 9)
    for letter in DeadLetter.objects.all()[:8]:
        DeadLetter.objects.filter(pk=letter.pk).update(body=b'{"good": 1}')

    plan = planned()
    bus.drain()
    bus.relay()

    assert counts(plan) == {"healed": 8, "failed": 1}
    assert again(plan).state == "done"


def test_no_more_are_under_way_than_allowed(bus, fault):
    park(bus, 5)

    plan = planned({"in_flight": 2})
    step_plans("default")
    step_plans("default")

    assert counts(plan) == {"pending": 3, "sent": 2}


def test_a_plan_keeps_its_rate_however_often_a_worker_looks(bus, fault):
    park(bus, 3)
    plan = planned({"rate": 0.02})

    Plan.objects.update(paced_at=timezone.now() - timedelta(seconds=60))
    for _ in range(5):
        step_plans("default")

    assert counts(plan) == {"pending": 2, "sent": 1}


def test_a_cancelled_plan_sends_no_more_and_still_tells_what_came_of_the_rest(bus, fault):
    park(bus, 5)
    fault.is_mended = True
    plan = planned({"in_flight": 2})
    step_plans("default")

    plans.cancel(plan.pk, by="bob", using="default")
    bus.drain()
    bus.relay()

    assert counts(plan) == {"healed": 2, "skipped": 3}
    assert again(plan).state == "cancelled"
    assert again(plan).ended_at
    skipped = PlannedLetter.objects.filter(state="skipped").values_list("reason", flat=True)
    assert set(skipped) == {"plan_cancelled"}
    assert DeadLetter.objects.filter(state="open").count() == 3


def test_a_paused_plan_sends_nothing_and_still_tells_what_came_of_the_rest(bus, fault):
    park(bus, 3)
    fault.is_mended = True
    plan = planned({"in_flight": 2})
    step_plans("default")

    plans.pause(plan.pk, by="bob", using="default")
    bus.drain()
    bus.relay()

    assert counts(plan) == {"healed": 2, "pending": 1}
    assert (again(plan).state, again(plan).note_text) == ("paused", "Paused by bob.")


def test_of_two_plans_over_the_same_dead_letters_each_moves_once(bus, fault):
    park(bus, 3)
    first, second = planned(by="ada"), planned(by="bob")

    step_plans("default")
    bus.drain()
    bus.relay()

    assert (counts(first), counts(second)) == ({"failed": 3}, {"skipped": 3})
    reasons = {row.reason_text for row in PlannedLetter.objects.filter(plan=second)}
    assert reasons == {"ada re-drove it in the meantime"}
    assert set(DeadLetter.objects.values_list("round", flat=True)) == {1}


def test_a_loop_that_is_quicker_than_the_steps_of_a_plan_does_not_fall_asleep(bus, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "POLL_INTERVAL": "20s"}
    rows = [DeadLetter(message_id=str(number), queue="q", body=b"{}") for number in range(250)]
    DeadLetter.objects.bulk_create(rows)
    pace = Pace(canary=0, rate=1_000_000, in_flight=1_000)
    plan = make_plan(Selection(), by="ada", reason="mended", using="default", pace=pace)
    plans.start(plan.pk, by="ada", using="default")
    crew = Crew()
    crew.add("relay", RelayLoop(Relay(bus.transport.publisher(), "default"), crew.stop).run)
    crew.add("watch", lambda: stop_when(crew, lambda: plans.progress(plan)["pending"] == 0))

    began = time.monotonic()
    crew.run()

    assert plans.progress(plan)["sent"] == 250
    assert time.monotonic() - began < 15


def stop_when(crew, condition):
    try:
        eventually(condition, timeout=30)
    finally:
        crew.stop.set()


def test_what_was_discarded_or_re_driven_in_the_meantime_is_skipped_and_says_why(bus, fault):
    park(bus, 3)
    first, second, _ = DeadLetter.objects.order_by("pk")
    plan = planned()

    discard([first.pk], reason="not needed", by="bob", using="default")
    redrive([second.pk], by="eve", using="default")
    step_plans("default")

    assert counts(plan) == {"skipped": 2, "sent": 1}
    skipped = PlannedLetter.objects.filter(state="skipped").order_by("pk")
    assert [row.reason_text for row in skipped] == [
        "it was discarded in the meantime",
        "eve re-drove it in the meantime",
    ]


@pytest.mark.postgres
def test_any_number_of_workers_send_each_dead_letter_once(bus, fault):
    park(bus, 20)
    plan = planned()
    barrier = threading.Barrier(4, timeout=10)

    def work():
        barrier.wait()
        for _ in range(5):
            step_plans("default")
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert counts(plan) == {"sent": 20}
    assert OutboxEvent.objects.exclude(queue="").count() == 20


@pytest.mark.postgres
def test_a_plan_does_not_wait_for_a_dead_letter_that_a_handler_holds(bus, fault):
    park(bus, 2)
    plan = planned()
    held = DeadLetter.objects.order_by("pk").first()
    is_held, is_over = threading.Event(), threading.Event()

    def hold():
        with transaction.atomic():
            DeadLetter.objects.select_for_update().get(pk=held.pk)
            is_held.set()
            is_over.wait(20)
        connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    assert is_held.wait(10)
    step_plans("default")
    meanwhile = counts(plan)
    is_over.set()
    holder.join(10)
    step_plans("default")

    assert meanwhile == {"pending": 1, "sent": 1}
    assert counts(plan) == {"sent": 2}


def test_a_re_drive_that_nobody_answers_is_unanswered_in_the_plan_too(bus, fault):
    park(bus, 1)
    plan = planned()
    step_plans("default")
    DeadLetter.objects.update(redriven_at=timezone.now() - timedelta(hours=2))

    mark_unanswered("default")
    bus.relay()

    assert counts(plan) == {"unknown": 1}
    assert again(plan).state == "done"


def test_many_need_a_reason(bus, fault, monkeypatch):
    monkeypatch.setattr(plans, "REASON_ABOVE", 2)
    park(bus, 3)

    with pytest.raises(BadPlan, match="A reason is required for more than 2 dead letters"):
        make_plan(ALL, by="ada", reason=" ", using="default")

    assert not Plan.objects.exists()
    assert make_plan(ALL, by="ada", reason="mended", using="default")


def test_a_plan_over_nothing_is_refused(bus):
    with pytest.raises(BadPlan, match="None of these dead letters can be re-driven"):
        make_plan(ALL, by="ada", reason="", using="default")


def test_a_limit_takes_those_that_were_parked_first(bus, fault):
    park(bus, 3)
    oldest = DeadLetter.objects.order_by("parked_at").first()

    plan = planned({"limit": 1})

    assert list(plan.planned.values_list("dead_letter_id", flat=True)) == [oldest.pk]


def test_what_was_parked_first_moves_first(bus, fault):
    park(bus, 5)
    now = timezone.now()
    moved = [3, 0, 4, 1, 2]
    letters = DeadLetter.objects.order_by("pk")
    for letter, place in zip(letters, moved, strict=True):
        letters.filter(pk=letter.pk).update(parked_at=now + timedelta(seconds=place - 60))
    by_age = list(letters.order_by("parked_at").values_list("pk", flat=True))

    plan = planned({"in_flight": 2})
    step_plans("default")

    sent = plan.planned.filter(state="sent").values_list("dead_letter_id", flat=True)
    assert set(sent) == set(by_age[:2])
    assert list(plan.planned.order_by("pk").values_list("dead_letter_id", flat=True)) == by_age


def test_a_plan_may_give_each_message_more_tries(bus, fault):
    park(bus, 1)

    planned({"tries": 3})
    bus.drain()

    assert (bus.letter.round, bus.letter.attempts) == (1, 3)


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_verb_that_does_not_fit_the_state_is_refused(bus, fault, verb):
    park(bus, 1)
    plan = make_plan(ALL, by="ada", reason="", using="default")

    with pytest.raises(BadPlan, match=f"is planned and cannot be {verb}d"):
        getattr(plans, verb)(plan.pk, by="ada", using="default")


def test_the_audit_has_who_when_why_which_and_what_came_of_it(bus, fault):
    park(bus, 2)
    fault.is_mended = True
    plan = planned(selection=Selection.from_words(["type=order.placed"]), reason="deployed 1.2")

    bus.drain()
    bus.relay()

    made, began, ended = AuditEntry.objects.order_by("pk")
    assert (made.verb, made.by, made.why, made.count) == ("plan re-drive", "ada", "deployed 1.2", 2)
    assert made.filter.startswith("type=order.placed&as_of=")
    assert (began.verb, began.plan_id) == ("start plan", plan.pk)
    assert (ended.verb, ended.outcome["healed"], ended.plan_id) == ("plan ended", 2, plan.pk)


def test_the_audit_tells_that_a_plan_paused_itself_and_why(bus, fault):
    park(bus, 3)
    plan = planned({"canary": 1})

    bus.drain()
    bus.relay()

    entry = AuditEntry.objects.latest("pk")
    assert (entry.verb, entry.plan_id, entry.note) == ("plan paused", plan.pk, "failing")
    assert entry.reason_text == again(plan).note_text
    assert (entry.outcome["failed"], entry.outcome["pending"]) == (1, 2)


def test_the_audit_can_only_grow(bus, fault):
    park(bus, 1)
    planned()
    entry = AuditEntry.objects.first()

    for forbidden in (entry.save, entry.delete, AuditEntry.objects.all().delete):
        with pytest.raises(AppendOnly):
            forbidden()
    with pytest.raises(AppendOnly):
        AuditEntry.objects.update(by="nobody")


def test_a_dry_run_of_a_few_of_many_looks_at_some_of_the_few(bus, fault, monkeypatch):
    park(bus, 40)
    monkeypatch.setattr("django_eventbus.redrive.dry_runs.ALL", 2)

    forecast = dry_run(ALL, using="default", limit=3)

    assert (forecast.count, forecast.looked_at) == (3, 3)


def test_a_dry_run_looks_at_the_first_where_chance_finds_none(bus, fault, monkeypatch):
    park(bus, 4)
    InboxRecord.objects.update(state="handled")
    far = {"state": "healed", "message_id": "m1", "body": b"", "closed_at": timezone.now()}
    DeadLetter.objects.create(pk=10**12, **far)
    for name, number in {"ALL": 2, "SAMPLE": 3, "PLACES": 3}.items():
        monkeypatch.setattr(f"django_eventbus.redrive.dry_runs.{name}", number)

    forecast = dry_run(ALL, using="default")

    assert (forecast.count, forecast.looked_at) == (4, 3)
    assert forecast.scaled(forecast.already_handled) == 4


def test_a_dry_run_says_what_would_happen_and_moves_nothing(bus, fault):
    park(bus, 4)
    handled, gone, closed, _ = DeadLetter.objects.order_by("pk")
    InboxRecord.objects.filter(message_id=handled.message_id).update(state="handled")
    DeadLetter.objects.filter(pk=gone.pk).update(subscription="renamed", queue="elsewhere")
    discard([closed.pk], reason="", by="ada", using="default")

    forecast = dry_run(ALL, using="default")

    targets = {(each.queue, each.type, each.subscription): each.count for each in forecast.targets}
    assert targets == {
        (conf.queue(), "order.placed", "faulty"): 2,
        ("elsewhere", "order.placed", "renamed"): 1,
    }
    assert (forecast.count, forecast.staying) == (3, {"discarded": 1})
    assert (forecast.without_subscription, forecast.without_queue) == (1, 1)
    assert (forecast.already_handled, forecast.looked_at, forecast.is_sampled) == (1, 3, False)
    assert forecast.selection.is_frozen
    assert not OutboxEvent.objects.exists()
