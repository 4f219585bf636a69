"""Rows store codes, and each reader sees the sentence in a language of theirs."""

from __future__ import annotations

import pytest
from django.utils import translation

from django_eventbus.dead_letters.selection import Selection
from django_eventbus.models import DeadLetter, InboxRecord, Plan, PlannedLetter
from django_eventbus.models.reasons import (
    LetterReason,
    PlanNote,
    Reason,
    SkipReason,
    StayReason,
    UnansweredReason,
)
from django_eventbus.redrive import plans
from django_eventbus.redrive.discards import discard
from django_eventbus.redrive.plans import Pace, make_plan
from django_eventbus.redrive.runner import step_plans
from tests.support.tables import table

BY_ADA = {"by": "ada", "using": "default"}
REASONS = [
    reason
    for reasons in (LetterReason, PlanNote, SkipReason, StayReason, UnansweredReason)
    for reason in reasons
]


@table("reason", REASONS)
def test_a_reason_keeps_its_detail_in_every_language(reason: Reason):
    for language in ("en", "de", "pt-br"):
        with translation.override(language):
            assert ("100 % sure" in reason.sentence("100 % sure")) == ("%" in str(reason.label))


@table(
    ("reason", "detail", "german"),
    [
        (PlanNote.PAUSED, "ada", "Angehalten von ada."),
        (StayReason.NO_QUEUE, "", "ihre Queue gibt es nicht"),
        (LetterReason.ERROR, "ValueError", "ValueError"),
    ],
)
def test_a_reason_is_shown_in_german(reason: Reason, detail: str, german: str):
    with translation.override("de"):
        assert reason.sentence(detail) == german


def test_the_state_in_a_reason_is_translated_too():
    row = PlannedLetter(reason=LetterReason.CHANGED, detail=DeadLetter.State.DISCARDED)

    assert row.reason_text == "it was discarded in the meantime"
    with translation.override("de"):
        assert "verworfen" in row.reason_text


def park(bus, number: int) -> None:
    def fail(event):
        raise ValueError("no stock")

    bus.subscribe("order.*", name="faulty", retry=[])(fail)
    for _ in range(number):
        bus.put()
    bus.drain()


@pytest.mark.parametrize("language", ["de", "en"])
def test_what_a_worker_stores_does_not_depend_on_its_language(bus, language):
    park(bus, 2)
    plan = make_plan(Selection(), reason="fixed", pace=Pace(canary=0, rate=1_000_000), **BY_ADA)

    with translation.override(language):
        discard([DeadLetter.objects.first().pk], reason="obsolete", **BY_ADA)
        plans.start(plan.pk, **BY_ADA)
        step_plans("default")
        plans.pause(plan.pk, by="bob", using="default")

    paused, skipped = (
        Plan.objects.get(pk=plan.pk),
        PlannedLetter.objects.get(plan=plan, state="skipped"),
    )
    assert (paused.note, paused.note_detail) == ("paused", "bob")
    assert (skipped.reason, skipped.detail) == ("changed", "discarded")
    record = InboxRecord.objects.get(state="skipped")
    assert (record.skip_reason, record.error) == ("discarded", "obsolete")
