"""redrive_events and discard_events: the admin's filters and plans, from a terminal."""

from __future__ import annotations

import io
import json

import pytest
from django.core.management import CommandError, call_command

from django_eventbus.conf import conf
from django_eventbus.management.progress_bar import ProgressBar
from django_eventbus.models import AuditEntry, DeadLetter, OutboxEvent, Plan
from tests.end_to_end.oracle import FAST
from tests.end_to_end.test_plans import dead_letters
from tests.shop.models import Effect

pytestmark = pytest.mark.django_db(transaction=True)


def run(*words, **options):
    stream = io.StringIO()
    call_command(*words, stdout=stream, **options)
    return stream.getvalue()


def test_a_dry_run_shows_what_would_move_and_moves_nothing():
    dead_letters(3)

    said = run("redrive_events", "type=count.up", "--dry-run")
    told = json.loads(run("redrive_events", "type=count.up", "--dry-run", "--json"))

    queue = conf.queue("counts")
    assert said == f"3 of count.up to shop.count on {queue}.\n"
    assert (told["count"], told["invalid"], told["looked_at"]) == (3, 0, 3)
    assert told["targets"] == [
        {"queue": queue, "subscription": "shop.count", "type": "count.up", "count": 3}
    ]
    assert not Plan.objects.exists()


def test_a_dry_run_says_what_would_go_wrong():
    dead_letters(2)
    DeadLetter.objects.update(subscription="gone", queue="elsewhere", body=b"{")

    said = run("redrive_events", "--dry-run")

    assert "2 have no subscription here." in said
    assert "2 have a queue that is not this project's." in said
    assert "2 have a payload that their handler cannot be given." in said


def test_a_plan_is_started_as_told_and_is_in_the_audit():
    dead_letters(3)
    options = ("--canary", "1", "--rate", "7.5", "--in-flight", "9", "--tries", "2", "--limit", "2")

    said = run("redrive_events", "type=count.up", *options, "--by", "ada", "--reason", "x", "--yes")

    plan = Plan.objects.get()
    assert said == f"Plan {plan.pk} re-drives 2; the workers carry it out.\n"
    assert (plan.state, plan.canary, plan.rate, plan.in_flight, plan.tries) == (
        "canary",
        1,
        7.5,
        9,
        2,
    )
    assert (plan.created_by, plan.reason, plan.planned.count()) == ("ada", "x", 2)
    assert AuditEntry.objects.filter(verb="plan re-drive", by="ada", count=2).exists()


def test_a_patch_makes_a_plan_that_edits():
    dead_letters(1)

    run("redrive_events", "--patch", '{"a": 1}', "--yes")

    assert Plan.objects.get().patch == {"a": 1}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["colour=red"], "there is no such filter"),
        (["type=count.up"], "Nobody can answer here: say --yes."),
        (["--patch", "[1]"], "write an object"),
        (["--patch", "{"], "this is not JSON"),
        (["--rate", "none"], "is not a number above 0"),
        (["--database", "elsewhere"], "There is no database 'elsewhere'"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence_and_nothing_moves(words, sentence, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    dead_letters(1)

    with pytest.raises(CommandError, match=sentence):
        run("redrive_events", *words)

    assert not Plan.objects.exists()


def test_only_yes_is_yes(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    dead_letters(1)
    monkeypatch.setattr("sys.stdin", Terminal("n\ny\n"))

    with pytest.raises(CommandError, match="Nothing was done"):
        run("redrive_events")
    run("redrive_events")

    assert Plan.objects.count() == 1


def test_waiting_tells_every_outcome_and_ends_with_0_if_all_healed(manage):
    dead_letters(4)
    manage("consume_events", "--with-relay", env=FAST, is_measured=False)

    waited = manage.run("redrive_events", "--wait", "--json", "--yes", "--canary", "1", env=FAST)

    assert waited.returncode == 0, waited.output
    told = json.loads(waited.output)
    assert (told["state"], told["healed"], told["pending"]) == ("done", 4, 0)
    assert Effect.objects.count() == 4


def test_waiting_ends_with_1_when_the_plan_pauses_itself(manage):
    letters = dead_letters(3)
    DeadLetter.objects.update(subscription="shop.act", type="act.now", body=b'{"do": "fail"}')
    DeadLetter.objects.update(queue=conf.queue("acts"))
    manage("consume_events", "--with-relay", env=FAST, is_measured=False)

    waited = manage.run("redrive_events", "--wait", "--yes", "--canary", "1", env=FAST)

    assert waited.returncode == 1
    assert "is paused: 2 pending, 1 failed." in waited.output
    assert "1 of the latest 1 failed again" in waited.output
    assert OutboxEvent.objects.count() < len(letters)


def test_a_selection_is_discarded_from_a_terminal():
    dead_letters(3)

    dry = run("discard_events", "type=count.up", "--dry-run")
    said = run("discard_events", "type=count.up", "--limit", "2", "--reason", "old", "--yes")

    assert dry.startswith("3 of count.up")
    assert said == "Discarded 2.\n"
    assert DeadLetter.objects.filter(state="discarded", note="old").count() == 2
    assert AuditEntry.objects.get(verb="discarded").count == 2


def test_nothing_to_do_is_said():
    assert run("discard_events", "type=none") == "Nothing is meant by this.\n"


def test_a_progress_bar_is_for_terminals_only():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        bar = ProgressBar(stream, 4)
        bar.show(1, "so far")
        bar.show(4)
        bar.end()

    assert "1 of 4 so far" in terminal.getvalue()
    assert terminal.getvalue().endswith("4 of 4       \n")
    assert file.getvalue() == ""
