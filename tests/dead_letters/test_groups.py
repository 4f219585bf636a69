"""Failures that are alike are one group, which people decide about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from django_eventbus.dead_letters.fingerprints import (
    is_project_file,
    last_project_line,
    normalised_message,
    project_frame,
    strip_variables,
)
from django_eventbus.dead_letters.groups import (
    BUCKETS,
    buckets,
    group_of,
    groups,
    record_decision,
    trend_of,
)
from django_eventbus.dead_letters.parking import ParkingCause, failure_signature
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.models import AuditEntry, DeadLetter, FailureGroup
from django_eventbus.redrive.letters import redrive
from tests.support.tables import table

pytestmark = pytest.mark.both_databases

ALL = Selection()
DAY = timedelta(days=1)


def page(**options):
    found, _ = groups(ALL, using="default", span=DAY, **options)
    return found


def failing(bus, words="no stock", name="failing"):
    def handler(event):
        raise ValueError(words.format(id=event.meta.id))

    bus.subscribe("order.*", tries=1, name=name)(handler)


def put(bus, number):
    for _ in range(number):
        bus.put()
    bus.drain()


@table(
    ("words", "left"),
    [
        ("order 42 has no stock", "order # has no stock"),
        ("at 0x7f00aa", "at #"),
        ("id 0198c0de-1234-7abc-8def-0123456789ab is gone", "id # is gone"),
        ("no user 'ada@example.org'", "no user #"),
        ('field "name" is bad', "field # is bad"),
        ("can't open the user's file", "can't open the user's file"),
        ("commit 9fceb02d0ae598e95dc970b74767f19372d61af8", "commit #"),
        ("took 3.25 s since 12:30:01", "took # s since #"),
        ("a decade of defaced facades", "a decade of defaced facades"),
    ],
)
def test_what_varies_is_taken_out_of_an_error_and_nothing_else(words, left):
    assert strip_variables(words) == left


@table(
    ("error_type", "words", "title"),
    [
        ("KeyError", "'currency'", "'currency'"),
        ("KeyError", "'order-42'", "#"),
        ("KeyError", "'ada@example.org'", "#"),
        ("KeyError", "'Ada Lovelace'", "#"),
        ("KeyError", "42", "#"),
        (
            "AttributeError",
            "'NoneType' object has no attribute 'total'",
            "'NoneType' object has no attribute 'total'",
        ),
        ("ValueError", "no user 'ada'", "no user #"),
    ],
)
def test_a_title_keeps_the_names_of_the_code_that_an_error_quotes(error_type, words, title):
    assert normalised_message(error_type, words) == title


def test_the_place_is_the_project_s_own_and_has_no_line():
    import json

    try:
        json.loads("{")
    except ValueError as error:
        place, with_line = project_frame(error), last_project_line(error)

    name = "test_the_place_is_the_project_s_own_and_has_no_line"
    assert place == f"tests.dead_letters.test_groups:{name}"
    assert with_line.startswith(f"{__file__}:{name}:")


def test_neither_python_nor_what_is_installed_nor_the_bus_is_the_project_s_own():
    import json

    import django

    import django_eventbus

    assert is_project_file(__file__)
    assert not any(is_project_file(each.__file__) for each in (json, django, django_eventbus))


def test_an_error_that_was_never_raised_has_no_place():
    assert project_frame(ValueError()) == last_project_line(ValueError()) == ""


def test_the_kind_and_the_place_make_another_group():
    values = {"error_type": "ValueError", "error": "x"}
    causes = [
        ParkingCause(kind="failed", place="a:b", **values),
        ParkingCause(kind="given_up", place="a:b", **values),
        ParkingCause(kind="failed", place="a:c", **values),
    ]

    assert len({failure_signature("s", each).fingerprint for each in causes}) == 3


def test_like_failures_are_one_group_with_what_they_have_in_common(bus):
    failing(bus, "no stock for {id}")
    put(bus, 3)

    (group,) = page()

    assert (group.count, group.status, group.is_back) == (3, "new", False)
    assert group.row.title == "no stock for #"
    assert (group.row.subscription, group.row.error_type) == ("failing", "ValueError")
    assert group.row.place == "tests.dead_letters.test_groups:failing.<locals>.handler"
    assert group.sample == DeadLetter.objects.latest("parked_at").pk
    assert group.first_seen < group.last_seen
    assert sum(group.trend) == 3
    assert group.trend[-1] == 3
    assert len(group.trend) == BUCKETS


def test_the_largest_group_comes_first_and_pages_follow(bus):
    failing(bus)
    put(bus, 1)
    failing(bus, name="another")
    put(bus, 1)

    found, total = groups(ALL, using="default", span=DAY, limit=1, offset=1)

    assert [each.row.subscription for each in page()] == ["failing", "another"]
    assert ([each.count for each in found], total) == ([1], 2)


def test_a_selection_narrows_the_groups(bus):
    failing(bus)
    put(bus, 2)

    assert groups(Selection.from_words(["type=other"]), using="default", span=DAY) == ([], 0)


def test_what_is_no_failure_of_a_handler_is_beside_the_groups(bus):
    bus.subscribe("other.*", name="other", retry=[])(lambda event: None)
    bus.put(body=b"{")
    put(bus, 2)
    DeadLetter.objects.filter(kind="unmatched").order_by("pk").first()
    letter = DeadLetter.objects.create(kind="expired", fingerprint="broker", body=b"", queue="q")
    FailureGroup.objects.create(fingerprint=letter.fingerprint, kind="expired")

    assert page() == []
    assert buckets(ALL, using="default") == {"undecodable": 1, "unmatched": 2, "broker": 1}


def test_a_group_that_fails_again_after_a_re_drive_is_back(bus):
    failing(bus)
    put(bus, 1)

    redrive([bus.letter.pk], by="ada", using="default")
    bus.drain()

    assert page()[0].is_back


def test_a_group_that_comes_after_others_of_it_were_healed_is_back(bus):
    failing(bus)
    put(bus, 2)
    healed = DeadLetter.objects.order_by("pk")[:1].values("pk")
    soon = timezone.now() + timedelta(seconds=5)
    DeadLetter.objects.filter(pk__in=list(healed.values_list("pk", flat=True))).update(
        state="healed", round=1, closed_at=timezone.now()
    )
    assert not page()[0].is_back

    DeadLetter.objects.filter(state="open").update(parked_at=soon)

    assert page()[0].is_back


def test_a_resolved_group_is_back_when_another_of_it_arrives(bus):
    failing(bus)
    put(bus, 1)
    record_decision(page()[0].row.pk, "resolve", by="ada", using="default", note="mended in 1.4")
    assert (page()[0].status, page()[0].is_back) == ("resolved", False)

    put(bus, 1)

    assert (page()[0].status, page()[0].is_back) == ("resolved", True)


@pytest.mark.parametrize(
    ("verb", "status"),
    [("acknowledge", "acknowledged"), ("resolve", "resolved"), ("reopen", "new")],
)
def test_what_is_decided_is_kept_with_who_and_why_and_is_in_the_audit(bus, verb, status):
    failing(bus)
    put(bus, 1)
    fingerprint = page()[0].row.pk

    group = record_decision(fingerprint, verb, by="ada", using="default", note="see the log")

    assert (group.status, group.note, group.changed_by) == (status, "see the log", "ada")
    entry = AuditEntry.objects.get()
    assert (entry.verb, entry.why, entry.filter) == (
        f"{verb} group", "see the log", f"group={fingerprint}",
    )  # fmt: skip


def test_an_ignored_group_is_new_again_when_its_time_is_over(bus):
    failing(bus)
    put(bus, 1)
    fingerprint, now = page()[0].row.pk, timezone.now()
    group = record_decision(fingerprint, "ignore", by="ada", using="default", until=now + DAY)

    assert group.status_at(now) == "ignored"
    assert group.status_at(now + 2 * DAY) == "new"
    with pytest.raises(ValueError, match="until is required"):
        record_decision(fingerprint, "ignore", by="ada", using="default")


@pytest.mark.parametrize("year", [1, 9999])
def test_no_group_is_ignored_until_the_end_of_the_calendar(bus, year):
    failing(bus)
    put(bus, 1)
    until = datetime(year, 12, 31, tzinfo=UTC)

    with pytest.raises(ValueError, match="the latest time is 9998-12-31 23:59"):
        record_decision(page()[0].row.pk, "ignore", by="ada", using="default", until=until)

    assert page()[0].status == "new"


def long_ago(letter, **age):
    """Let it have failed for the first time so long ago."""
    then = timezone.now() - timedelta(**age)
    DeadLetter.objects.filter(pk=letter.pk).update(created_at=then, parked_at=then)
    FailureGroup.objects.filter(pk=letter.fingerprint).update(created_at=then)


def test_a_failed_re_drive_changes_neither_the_first_time_nor_the_trend(bus):
    failing(bus)
    put(bus, 1)
    long_ago(bus.letter, hours=6)
    before = page()[0]

    redrive([bus.letter.pk], by="ada", using="default")
    bus.drain()

    after = page()[0]
    assert after.first_seen == before.first_seen < timezone.now() - timedelta(hours=5)
    assert after.last_seen > before.last_seen
    assert after.trend == before.trend
    assert after.trend[-1] == 0


def test_what_is_healed_stays_in_the_trend_of_its_group(bus):
    failing(bus)
    put(bus, 3)
    DeadLetter.objects.filter(pk=DeadLetter.objects.latest("pk").pk).update(state="healed")

    (group,) = groups(Selection.from_words(["state=open"]), using="default", span=DAY)[0]

    assert (group.count, sum(group.trend)) == (2, 3)
    assert group.last_seen == DeadLetter.objects.latest("pk").parked_at
    assert group.sample == DeadLetter.objects.filter(state="open").latest("pk").pk


def test_a_group_of_which_nothing_waits_still_tells_what_was(bus):
    failing(bus)
    put(bus, 2)
    DeadLetter.objects.update(state="healed")

    group = group_of(FailureGroup.objects.get(), ALL, using="default", span=DAY)

    assert page() == []
    assert (group.count, sum(group.trend), group.sample) == (0, 2, None)
    assert group.last_seen == DeadLetter.objects.latest("pk").parked_at


def test_a_trend_counts_what_was_parked_in_each_span(bus):
    failing(bus)
    put(bus, 3)
    first, second, _ = DeadLetter.objects.order_by("pk")
    DeadLetter.objects.filter(pk=first.pk).update(parked_at=timezone.now() - DAY * 0.99)
    DeadLetter.objects.filter(pk=second.pk).update(parked_at=timezone.now() - DAY * 2)

    trend = trend_of(DeadLetter.objects.all(), DAY)

    assert (trend[0], trend[-1], sum(trend)) == (1, 1, 2)


def test_parking_writes_no_group_twice(bus):
    failing(bus)
    put(bus, 5)

    assert FailureGroup.objects.count() == 1
