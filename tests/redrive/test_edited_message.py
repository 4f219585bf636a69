"""Edit and re-drive: a new event in the place of the old one, which is kept until that is sent."""

from __future__ import annotations

import json
import sys
import threading
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from django_eventbus import Event
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.events.message import SUBSCRIPTION
from django_eventbus.exceptions import BadEdit, BadPlan
from django_eventbus.models import AuditEntry, DeadLetter, InboxRecord, OutboxEvent, PlannedLetter
from django_eventbus.outbox.relay import Relay
from django_eventbus.redrive import plans
from django_eventbus.redrive.dry_runs import dry_run_patch
from django_eventbus.redrive.edited_message import Edit, merged, own_headers, problems_of
from django_eventbus.redrive.letters import edit_and_redrive, mark_unanswered, redrive
from django_eventbus.redrive.plans import Pace, make_plan, progress
from tests.outbox.test_relay import ScriptedPublisher
from tests.shop.models import Effect
from tests.support.helpers import eventually
from tests.support.interludes import interlude
from tests.support.tables import table

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]


class OrderWeighed(Event, type="order.weighed", version=1):
    order_id: int
    grams: int
    note: str = ""


MOST = 1000


def weigh(event):
    if event.grams > MOST:
        raise ValueError("too heavy")
    Effect.objects.create(
        event_id=event.meta.id, subscription="weigh", note=event.meta.causation_id
    )


@pytest.fixture
def mended(monkeypatch):
    """Let the handler take whatever comes."""
    monkeypatch.setattr(sys.modules[__name__], "MOST", 1_000_000)


@pytest.fixture
def letter(bus):
    """One message whose handler cannot take it."""
    bus.subscribe(OrderWeighed, name="weigh", retry=[])(weigh)
    bus.subscribe("order.*", name="sibling")(lambda event: None)
    body = b'{"order_id": 1, "grams": 5000}'
    bus.put(type="order.weighed", body=body, headers={"tenant": "acme"})
    bus.drain()
    return bus.letter


def edit(letter, **payload):
    values = Edit(payload={"order_id": 1, "grams": 500, **payload})
    return edit_and_redrive(letter.pk, values, by="ada", reason="typo", using="default")


def again(letter):
    return DeadLetter.objects.get(pk=letter.pk)


@table(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_patch_does_what_rfc_7396_says(target, patch, result):
    assert merged(target, patch) == result


def test_an_edited_message_heals_under_a_new_id_caused_by_the_old_one(bus, letter):
    new = edit(letter)
    bus.drain()
    bus.relay()

    effect = Effect.objects.get()
    assert (effect.event_id, effect.note) == (new, letter.message_id)
    assert (again(letter).state, again(letter).replaced_by) == ("replaced", new)
    assert again(letter).closed_at
    assert again(letter).body == letter.body


def test_the_original_is_closed_only_when_the_broker_has_confirmed(bus, letter):
    new = edit(letter)

    assert (again(letter).state, again(letter).replaced_by) == ("redriving", new)
    bus.relay()
    bus.relay()
    assert again(letter).state == "replaced"


def test_an_edited_message_goes_to_the_failed_subscription_alone(bus, letter):
    edit(letter)

    row = OutboxEvent.objects.get()
    assert (row.queue, row.subscription) == (letter.queue, "weigh")
    assert row.headers[SUBSCRIPTION] == "weigh"
    assert row.headers["tenant"] == "acme"
    bus.drain()
    assert InboxRecord.objects.filter(subscription="sibling").count() == 1


def test_an_edited_message_that_fails_is_a_dead_letter_linked_to_the_first(bus, letter):
    new = edit(letter, grams=9000)
    bus.drain()
    bus.relay()

    failed = DeadLetter.objects.get(message_id=new)
    assert (failed.state, failed.edited_from) == ("open", letter.message_id)
    assert again(letter).state == "replaced"


def test_everything_that_is_wrong_is_said_at_once(letter):
    with pytest.raises(BadEdit) as refusal:
        edit_and_redrive(
            letter.pk,
            Edit(payload={"grams": "much", "note": 5}, headers={"x-retry-count": 3}),
            by="ada",
            reason="",
            using="default",
        )

    assert refusal.value.problems == [
        "OrderWeighed: order_id is missing",
        "OrderWeighed: grams: Expected `int`, got `str`",
        "OrderWeighed: note: Expected `str`, got `int`",
        "header 'x-retry-count' is reserved: x-*, eventbus-*, CC and BCC belong to the bus",
    ]
    assert again(letter).state == "open"
    assert not OutboxEvent.objects.exists()


def test_an_edit_that_changes_nothing_is_refused(letter):
    same = Edit(payload={"grams": 5000, "order_id": 1}, headers={"tenant": "acme"})

    with pytest.raises(BadEdit, match="Nothing was changed"):
        edit_and_redrive(letter.pk, same, by="ada", reason="", using="default")

    assert not OutboxEvent.objects.exists()


def test_what_json_cannot_hold_is_refused(letter):
    assert "cannot" in problems_of(letter, Edit(payload={"grams": float("nan")}))[0]


def test_headers_of_ones_own_can_be_changed_and_the_bus_s_are_kept(bus, letter):
    assert own_headers(letter) == {"tenant": "acme"}

    values = Edit(payload={"order_id": 1, "grams": 1}, headers={"tenant": "other"})
    edit_and_redrive(letter.pk, values, by="ada", reason="", using="default")

    headers = OutboxEvent.objects.get().headers
    assert headers["tenant"] == "other"
    assert headers["x-edited-from"] == letter.message_id


def test_what_was_re_driven_since_it_was_seen_is_not_edited(bus, letter):
    redrive([letter.pk], by="bob", using="default")
    bus.drain()

    with pytest.raises(BadEdit, match="no longer open, or it was re-driven in the meantime"):
        edit_and_redrive(
            letter.pk,
            Edit(payload={"order_id": 1, "grams": 1}),
            by="ada",
            reason="",
            using="default",
            round=letter.round,
        )


def test_the_audit_has_both_ids(letter):
    new = edit(letter)

    entry = AuditEntry.objects.get()
    assert (entry.verb, entry.by, entry.why) == ("edit and re-drive", "ada", "typo")
    assert entry.outcome == {"from": letter.message_id, "to": new}


def test_what_the_broker_did_not_take_opens_the_original_and_is_never_sent_later(bus, letter):
    edit(letter)
    lose_what_is_ready(bus)
    assert again(letter).state == "unknown"

    second = edit(letter)

    states = dict(OutboxEvent.objects.values_list("message_id", "state"))
    assert states.pop(second) == "ready"
    assert list(states.values()) == ["cancelled"]


@pytest.fixture
def unanswered(bus, letter):
    """A dead letter whose re-drive lies in the queue, and was given up on."""
    redrive([letter.pk], by="ada", using="default")
    bus.relay()
    DeadLetter.objects.update(redriven_at=timezone.now() - timedelta(days=30))
    assert mark_unanswered("default") == 1
    return again(letter)


def run(bus):
    """Return what ran, after everything that was under way has come to an end."""
    bus.drain()
    bus.relay()
    return list(Effect.objects.values_list("event_id", flat=True))


def test_a_late_copy_of_what_was_edited_is_not_run(bus, unanswered, mended):
    new = edit(unanswered)

    assert run(bus) == [new]
    assert again(unanswered).state == "replaced"
    record = InboxRecord.objects.get(message_id=unanswered.message_id, subscription="weigh")
    assert (record.state, record.skip_reason, record.error) == ("skipped", "replaced", new)


def test_a_late_copy_of_what_a_plan_patched_is_not_run(bus, unanswered, mended):
    pace = Pace(canary=0, rate=1_000_000)
    values = {"by": "ada", "reason": "typo", "using": "default"}
    plan = make_plan(Selection(), patch={"grams": 500}, pace=pace, **values)
    plans.start(plan.pk, by="ada", using="default")

    ran = run(bus)

    assert ran == [PlannedLetter.objects.get().sent_as]
    assert progress(plan)["healed"] == 1


def test_what_the_inbox_refused_for_an_edit_that_was_not_sent_can_be_re_driven(
    bus, unanswered, mended
):
    edit(unanswered)
    lose_what_is_ready(bus)
    assert run(bus) == []

    redrive([unanswered.pk], by="bob", using="default")

    assert run(bus) == [unanswered.message_id]
    assert again(unanswered).state == "healed"


def lose_what_is_ready(bus):
    """Let the broker take nothing that is ready: its queue is not there for a moment."""
    bus.relayer.close()
    OutboxEvent.objects.filter(state="ready").update(type="order.lost")
    other = Relay(ScriptedPublisher(), "default")
    other.relay_once()
    other.close()
    OutboxEvent.objects.filter(type="order.lost").update(type="order.weighed")
    bus.start_relay()


def test_an_edited_message_that_was_published_again_closes_the_original(bus, letter, mended):
    new = edit(letter)
    lose_what_is_ready(bus)
    assert again(letter).state == "unknown"
    OutboxEvent.objects.filter(message_id=new).publish_again()

    ran = run(bus)
    redrive([letter.pk], by="bob", using="default")

    assert ran == run(bus) == [new]
    assert again(letter).state == "replaced"


def is_somebody_waiting():
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
        return cursor.fetchone()


@pytest.mark.postgres
def test_an_original_is_not_re_driven_while_the_edited_message_is_being_sent(bus, letter, mended):
    new = edit(letter)
    lose_what_is_ready(bus)
    OutboxEvent.objects.filter(message_id=new).publish_again()
    redriven = []

    def re_drive():
        redriven.append(redrive([letter.pk], by="bob", using="default"))
        connection.close()

    other = threading.Thread(target=re_drive)

    def re_drive_meanwhile():
        other.start()
        eventually(lambda: redriven or is_somebody_waiting())

    # The relay has claimed the edited message, and has no confirm yet.
    with interlude("relay.claimed", re_drive_meanwhile):
        bus.relay()
    other.join(20)

    assert redriven == [0]
    assert run(bus) == [new]
    assert again(letter).state == "replaced"


def test_what_is_out_under_a_new_id_is_not_re_driven_before_anybody_has_closed_it(bus, letter):
    edit(letter)
    lose_what_is_ready(bus)
    OutboxEvent.objects.filter(message_id=again(letter).replaced_by).update(state="published")

    assert redrive([letter.pk], by="bob", using="default") == 0
    with pytest.raises(BadEdit, match="no longer open"):
        edit(letter, note="twice")
    assert again(letter).state == "unknown"


def test_a_plan_with_a_patch_heals_and_tells_each_outcome(bus, letter):
    for grams in (3000, 4000):
        body = json.dumps({"order_id": 2, "grams": grams}).encode()
        bus.put(type="order.weighed", body=body)
    bus.drain()
    pace = Pace(canary=1, rate=1_000_000, in_flight=10)
    patch = {"grams": 100, "note": "corrected"}

    forecast = dry_run_patch(Selection(), patch, using="default")
    plan = make_plan(Selection(), by="ada", reason="", using="default", pace=pace, patch=patch)
    plans.start(plan.pk, by="ada", using="default")
    for _ in range(3):
        bus.drain()

    assert (forecast.count, forecast.invalid) == (3, 0)
    assert progress(plan)["healed"] == 3
    assert Effect.objects.count() == 3
    assert set(DeadLetter.objects.values_list("state", flat=True)) == {"replaced"}


def test_a_patch_that_makes_it_invalid_is_foretold_and_skipped(bus, letter):
    patch = {"grams": "heavy"}
    forecast = dry_run_patch(Selection(), patch, using="default")
    pace = Pace(rate=1_000_000)
    plan = make_plan(Selection(), by="ada", reason="", using="default", pace=pace, patch=patch)
    plans.start(plan.pk, by="ada", using="default")

    bus.drain()

    words = "OrderWeighed: grams: Expected `int`, got `str`"
    assert (forecast.invalid, forecast.problems) == (1, [(letter.pk, [words])])
    row = PlannedLetter.objects.get()
    assert (row.state, row.reason, row.detail) == ("skipped", "invalid", words)
    assert again(letter).state == "open"


@pytest.mark.parametrize(
    "value",
    ["\0", "\ud800", float("inf"), float("nan"), 10**5000],
    ids=["NUL", "surrogate", "endless", "nan", "digits"],
)
def test_a_patch_that_cannot_be_stored_is_refused_by_dry_run_and_plan(letter, value):
    patch = {"note": [value]}

    with pytest.raises(BadPlan, match="This patch cannot be stored"):
        dry_run_patch(Selection(), patch, using="default")
    with pytest.raises(BadPlan, match="This patch cannot be stored"):
        make_plan(Selection(), by="ada", reason="", using="default", patch=patch)

    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize(
    "value", ["\ud800", float("inf"), 10**5000], ids=["surrogate", "endless", "digits"]
)
def test_an_edit_that_cannot_be_sent_is_refused(letter, value):
    with pytest.raises(BadEdit, match=r"payload\.note"):
        edit(letter, note=value)

    assert again(letter).state == "open"


def test_a_patched_message_that_fails_again_says_so(bus, letter):
    pace = Pace(canary=0, rate=1_000_000)
    plan = make_plan(
        Selection(), by="ada", reason="", using="default", pace=pace, patch={"grams": 7000}
    )
    plans.start(plan.pk, by="ada", using="default")

    bus.drain()
    bus.drain()

    row = PlannedLetter.objects.get()
    assert (row.state, row.reason, row.detail) == ("failed", "error", "ValueError")
