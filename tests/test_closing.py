"""Discard, restore and ignore: over ids and over selections."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from django_eventbus.closing import discard, discard_selected, ignore_selected, restore_selected
from django_eventbus.dry_runs import dry_run
from django_eventbus.exceptions import BadPlan
from django_eventbus.failure_groups import groups
from django_eventbus.matching import letters_of
from django_eventbus.models import AuditEntry, DeadLetter, InboxRecord
from django_eventbus.redrive import redrive
from django_eventbus.selections import Selection
from tests.test_plans import fault as fault
from tests.test_plans import park

pytestmark = pytest.mark.django_db(transaction=True)

ALL = Selection()
WHO = {"by": "ada", "using": "default"}


def states():
    return sorted(DeadLetter.objects.values_list("state", flat=True))


def test_a_selection_is_discarded_with_its_inbox_records(bus, fault):
    park(bus, 3)

    assert discard_selected(ALL, reason="obsolete", **WHO) == 3

    assert states() == ["discarded"] * 3
    assert set(InboxRecord.objects.values_list("state", "error")) == {
        ("skipped", "discarded: obsolete")
    }
    asked, done = AuditEntry.objects.order_by("pk")
    assert (asked.verb, asked.by, asked.why, asked.count) == ("discard", "ada", "obsolete", 3)
    assert (done.verb, done.by, done.why, done.count) == ("discarded", "ada", "obsolete", 3)
    assert done.outcome == {"changed": 3, "left": 0}


def test_only_so_many_are_discarded_and_progress_is_told_by_batch():
    letters = [DeadLetter(message_id=str(number), queue="q", body=b"") for number in range(503)]
    DeadLetter.objects.bulk_create(letters)
    told = []

    assert discard_selected(ALL, reason="x", limit=501, on_batch=told.append, **WHO) == 501

    assert told == [500, 501]
    assert states() == ["discarded"] * 501 + ["open"] * 2


def test_what_is_parked_after_the_selection_was_frozen_is_not_discarded(bus, fault):
    park(bus, 1)
    seen = Selection.from_query(
        f"as_of={timezone.now().isoformat()}~{bus.letter.pk}".replace("+", "%2B")
    )
    park(bus, 1)

    assert discard_selected(seen, reason="x", **WHO) == 1
    assert states() == ["discarded", "open"]


def test_many_need_a_reason(bus, fault, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "REASON_ABOVE": 1}
    park(bus, 2)

    with pytest.raises(BadPlan, match="need a reason"):
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

    assert list(letters_of(Selection.from_words(["ignored=yes"]), "default")) == [first]
    assert first not in letters_of(Selection.from_words(["ignored=no"]), "default")
    DeadLetter.objects.update(ignored_until=timezone.now() - timedelta(seconds=1))
    assert letters_of(Selection.from_words(["ignored=no"]), "default").count() == 2


def test_what_is_ignored_still_counts_in_its_group_and_moves_with_it(bus, fault):
    park(bus, 2)
    first = DeadLetter.objects.order_by("pk").first()
    soon = timezone.now() + timedelta(hours=1)
    ignore_selected(Selection.of_ids([first.pk]), soon, reason="known", **WHO)

    (group,), _ = groups(ALL, using="default", span=timedelta(days=1))

    assert group.count == 2
    assert dry_run(group.selection, using="default").count == 2
