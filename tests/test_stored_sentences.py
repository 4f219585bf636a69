"""Sentences are kept in English, and read in any language."""

from __future__ import annotations

from django.utils import translation
from django.utils.translation import gettext_noop

from django_eventbus.dead_letters.selection import Selection
from django_eventbus.models import DeadLetter, Plan, PlannedLetter
from django_eventbus.redrive import plans
from django_eventbus.redrive.discards import discard
from django_eventbus.redrive.plans import Pace, make_plan
from django_eventbus.redrive.runner import step_plans
from django_eventbus.translations import known, translated
from tests.support.tables import table

WHO = {"by": "ada", "using": "default"}


@table(
    ("kept", "read"),
    [
        ("Paused by ada.", "Angehalten von ada."),
        ("it was discarded meanwhile", "inzwischen verworfen"),
        (
            "2 of the latest 5 failed again, which is more than 20 %.",
            "2 der letzten 5 schlugen erneut fehl, mehr als 20 %.",
        ),
        (
            "its queue does not exist; it was re-driven meanwhile",
            "ihre Queue gibt es nicht; sie wurde inzwischen erneut zugestellt",
        ),
    ],
)
def test_a_sentence_of_ours_is_read_in_german(kept, read):
    with translation.override("de"):
        assert translated(kept) == read


@table("text", ["", "ValueError", "Ein alter Satz.", "100 % sure; really"])
def test_what_others_wrote_stays_as_it_is(text):
    with translation.override("de"):
        assert translated(text) == text


def test_nothing_is_looked_for_in_a_long_text():
    text = "Paused by " + "ada" * 1000 + "."

    with translation.override("de"):
        assert translated(text) == text


def test_a_sentence_without_a_translation_is_read_as_it_is():
    known(gettext_noop("it flew to %(place)s"))

    with translation.override("de"):
        assert translated("it flew to the moon") == "it flew to the moon"


def parked(bus, number: int) -> None:
    def fail(event):
        raise ValueError("no stock")

    bus.subscribe("order.*", name="faulty", retry=[])(fail)
    for _ in range(number):
        bus.put()
    bus.drain()


def test_a_worker_that_speaks_german_writes_english_into_rows(bus):
    parked(bus, 2)
    pace = Pace(canary=0, rate=1_000_000)
    plan = make_plan(Selection(), reason="mended", pace=pace, **WHO)

    with translation.override("de"):
        discard([DeadLetter.objects.first().pk], reason="obsolete", **WHO)
        plans.start(plan.pk, **WHO)
        step_plans("default")
        plans.pause(plan.pk, by="bob", using="default")

    assert Plan.objects.get(pk=plan.pk).note == "Paused by bob."
    skipped = PlannedLetter.objects.get(plan=plan, state="skipped")
    assert skipped.why == "it was discarded meanwhile"
