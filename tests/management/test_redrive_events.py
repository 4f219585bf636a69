"""redrive_events and discard_events: the admin's filters and plans, from a terminal."""

from __future__ import annotations

import io
import json
import signal
import sys
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from django_eventbus.conf import conf
from django_eventbus.management.output import ProgressBar
from django_eventbus.models import AuditEntry, DeadLetter, OutboxEvent, Plan
from django_eventbus.redrive.runner import step_plans
from tests.end_to_end.oracle import FAST
from tests.end_to_end.test_plans import dead_letters
from tests.shop.models import Effect
from tests.support.helpers import eventually
from tests.support.tables import table

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
    assert said == f"Would re-drive 3 of count.up to shop.count on {queue}.\n"
    assert (told["count"], told["invalid"], told["looked_at"]) == (3, 0, 3)
    assert told["targets"] == [
        {"queue": queue, "subscription": "shop.count", "type": "count.up", "count": 3}
    ]
    assert not Plan.objects.exists()


def test_a_dry_run_counts_no_more_than_the_limit_the_oldest_first():
    oldest, *others = dead_letters(4)
    DeadLetter.objects.filter(pk=oldest.pk).update(type="count.down")
    DeadLetter.objects.filter(pk=others[-1].pk).update(parked_at=oldest.parked_at)

    told = json.loads(run("redrive_events", "--dry-run", "--limit", "2", "--json"))
    patched = run("redrive_events", "--dry-run", "--limit", "3", "--patch", '{"a": 1}')

    assert (told["count"], told["looked_at"]) == (2, 2)
    assert [(each["type"], each["count"]) for each in told["targets"]] == [
        ("count.down", 1),
        ("count.up", 1),
    ]
    assert patched.startswith("Would re-drive 2 of count.up")
    assert json.loads(run("redrive_events", "--dry-run", "--limit", "9", "--json"))["count"] == 4


def test_a_dry_run_says_what_would_go_wrong():
    dead_letters(2)
    DeadLetter.objects.update(subscription="gone", queue="elsewhere", body=b"{")

    said = run("redrive_events", "--dry-run")

    assert "2 have no subscription in this project and would be parked again." in said
    assert "2 have a queue that is not this project's." in said
    assert "2 have a payload that their handlers do not accept." in said


def test_a_plan_is_started_as_told_and_is_in_the_audit():
    dead_letters(3)
    options = ("--canary", "1", "--rate", "7.5", "--in-flight", "9", "--tries", "2", "--limit", "2")

    said = run("redrive_events", "type=count.up", *options, "--by", "ada", "--reason", "x", "--yes")

    plan = Plan.objects.get()
    assert said == f"Plan {plan.pk} re-drives 2 dead letters. Workers carry it out.\n"
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
        (["colour=red"], "this filter does not exist"),
        (["state=opn"], "did you mean 'open'"),
        (["payload.x=1e400"], "this is not a number in JSON"),
        (["type=count.up"], "There is no terminal to ask: use --yes."),
        (["--patch", "[1]"], "use a JSON object"),
        (["--patch", "{"], "is not valid JSON"),
        (["--patch", '{"a": %s}' % ("1" * 5000)], "is not valid JSON"),
        (["--patch", '{"a": ' * 9999], "is not valid JSON"),
        (["--patch", '{"a": "\\u0000"}', "--yes"], "This patch cannot be stored"),
        (["--patch", '{"a": 1e400}', "--dry-run"], "This patch cannot be stored"),
        (["--rate", "none"], "is not a number above 0"),
        (["--canary", "-1"], "'-1' is not a whole number of 0 or more"),
        (["--fail-percent", "101"], "'101' is not a whole number from 0 to 100"),
        (["--database", "elsewhere"], "There is no database 'elsewhere'"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence_and_nothing_moves(words, sentence, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    dead_letters(1)

    with pytest.raises(CommandError, match=sentence):
        run("redrive_events", *words)

    assert not Plan.objects.exists()


@table(
    ("words", "named"),
    [
        (["type=count.up"], "type=count.up"),
        (["--canary", "0", "--rate", "5"], "--canary, --rate"),
        (["type=count.up", "--in-flight", "5", "--wait"], "type=count.up, --in-flight, --wait"),
    ],
)
def test_what_is_said_of_plans_does_not_go_with_a_re_drive_from_the_broker(words, named):
    sentence = f"--from-broker re-drives a DLQ without a plan. Remove {named}."

    with pytest.raises(CommandError) as refusal:
        run("redrive_events", *words, "--from-broker", "counts", "--yes")

    assert str(refusal.value) == sentence
    assert not AuditEntry.objects.exists()


def test_a_user_without_a_name_is_known_by_number(monkeypatch):
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    # As in a container that runs as a user of whom the image knows nothing.
    monkeypatch.setattr("os.getuid", lambda: 54321)
    dead_letters(1)

    run("redrive_events", "--yes")
    run("eventbus_plan", str(Plan.objects.get().pk), "pause")

    assert Plan.objects.get().created_by == "uid 54321"
    assert set(AuditEntry.objects.values_list("by", flat=True)) == {"uid 54321"}


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


def test_a_plan_of_other_than_the_dry_run_counted_says_both_numbers(monkeypatch):
    class SlowTerminal(io.StringIO):
        def isatty(self):
            return True

        def readline(self, *size):
            DeadLetter.objects.filter(pk=self.letter.pk).update(state="discarded")
            return super().readline(*size)

    dead_letters(3)
    SlowTerminal.letter = DeadLetter.objects.first()
    monkeypatch.setattr("sys.stdin", SlowTerminal("y\n"))

    said = run("redrive_events")

    assert (
        "re-drives 2 dead letters. Workers carry it out. The dry run counted 3: some have" in said
    )


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
    assert "failed again: 1/1." in waited.output
    assert OutboxEvent.objects.count() < len(letters)


def test_a_selection_is_discarded_from_a_terminal():
    dead_letters(3)

    dry = run("discard_events", "type=count.up", "--dry-run", "--limit", "2")
    said = run("discard_events", "type=count.up", "--limit", "2", "--reason", "old", "--yes")

    queue = conf.queue("counts")
    assert dry == f"Would discard 2 of count.up, which failed in shop.count on {queue}.\n"
    assert said == f"Plan {Plan.objects.get().pk} is done: 2 discarded.\n"
    assert DeadLetter.objects.filter(state="discarded", note="old").count() == 2
    assert AuditEntry.objects.get(verb="discarded").count == 2


def test_a_discard_pauses_after_its_canary_and_is_steered_from_a_terminal():
    dead_letters(3)

    said = json.loads(
        run("discard_events", "--canary", "1", "--rate", "1000000", "--yes", "--json")
    )
    number = str(said.pop("plan"))
    shown = run("eventbus_plan", number)
    resumed = json.loads(run("eventbus_plan", number, "resume", "--by", "grace", "--json"))
    step_plans("default")

    assert said == {
        "action": "discard", "state": "paused", "pending": 2, "discarded": 1, "skipped": 0,
        "ignored": 0,
    }  # fmt: skip
    assert shown.startswith(
        f"Plan {number} is paused: 2 pending, 1 discarded. The canary of 1 is done. Check its result"
    )
    assert resumed["state"] == "running"
    assert run("eventbus_plan", number) == f"Plan {number} is done: 3 discarded.\n"
    assert AuditEntry.objects.get(verb="resume plan").by == "grace"


def test_what_cannot_be_done_to_a_plan_is_said():
    dead_letters(1)
    run("discard_events", "--yes")

    with pytest.raises(CommandError, match="There is no plan 987654321"):
        run("eventbus_plan", "987654321", "pause")
    with pytest.raises(CommandError, match="is done and cannot be paused"):
        run("eventbus_plan", str(Plan.objects.get().pk), "pause")


def test_a_discard_that_is_interrupted_is_paused(manage):
    dead_letters(50)

    process = manage("discard_events", "--rate", "1", "--yes", is_measured=False)
    eventually(lambda: DeadLetter.objects.filter(state="discarded").exists(), timeout=30)
    process.interrupt()

    assert process.wait() == 1
    plan = Plan.objects.get()
    assert f"eventbus_plan {plan.pk} resume` to continue" in process.output
    assert plan.state == "paused"


def test_a_dry_run_of_a_discard_has_nothing_of_a_re_drive():
    dead_letters(2)
    DeadLetter.objects.update(subscription="", body=b"{")

    said = run("discard_events", "--dry-run")
    told = json.loads(run("discard_events", "--dry-run", "--json"))

    queue = conf.queue("counts")
    assert said == f"Would discard 2 of count.up, which reached no subscription on {queue}.\n"
    assert sorted(told) == ["count", "filter", "ignored", "staying", "targets"]


def put_aside(letter):
    tomorrow = timezone.now() + timedelta(days=1)
    DeadLetter.objects.filter(pk=letter.pk).update(ignored_until=tomorrow)


@pytest.mark.parametrize("command", ["discard_events", "redrive_events"])
def test_what_is_ignored_for_now_is_left_out_and_counted(command):
    aside, *others = dead_letters(3)
    put_aside(aside)
    sentence = "1 is ignored for now and not included. Use ignored=yes, or its id, to include it.\n"

    said = run(command, "type=count.up", "--dry-run")
    told = json.loads(run(command, "type=count.up", "--dry-run", "--json"))
    done = run(command, "type=count.up", "--yes", "--reason", "x")

    assert said.endswith(sentence)
    assert (told["count"], told["ignored"]) == (2, 1)
    assert done.endswith(sentence)
    planned = Plan.objects.get().planned.values_list("dead_letter_id", flat=True)
    assert sorted(planned) == [each.pk for each in others]
    assert "ignored=no" in Plan.objects.get().filter
    assert json.loads(run(command, "--yes", "--json", "type=none"))["ignored"] == 0


@pytest.mark.parametrize("command", ["discard_events", "redrive_events"])
@pytest.mark.parametrize(
    ("words", "count"),
    [
        ("id={0.pk},{1.pk}", 2),
        ("message_id={0.message_id}", 1),
        ("ignored=yes", 1),
        ("ignored=no", 1),
    ],
)
def test_what_is_ignored_for_now_is_meant_if_it_is_named(command, words, count):
    letters = dead_letters(2)
    put_aside(letters[0])

    told = json.loads(run(command, words.format(*letters), "--dry-run", "--json"))

    assert (told["count"], told["ignored"]) == (count, 0)


def test_nothing_to_do_is_said():
    assert run("discard_events", "type=none") == "No dead letters match this filter.\n"


def test_nothing_to_do_is_json_like_something():
    outcomes = {"pending": 0, "skipped": 0}
    redriven = dict.fromkeys(("sent", "healed", "failed", "unknown"), 0)
    none = {"plan": None, "state": None, "ignored": 0, **outcomes}

    told = json.loads(run("redrive_events", "--yes", "--json"))
    assert told == {"plan": None, "count": 0, "ignored": 0}
    waited = json.loads(run("redrive_events", "--yes", "--json", "--wait"))
    assert waited == {**none, "action": "redrive", **redriven}
    discarded = json.loads(run("discard_events", "--yes", "--json"))
    assert discarded == {**none, "action": "discard", "discarded": 0}


def test_one_is_asked_about_in_the_singular(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    dead_letters(1)

    with pytest.raises(CommandError, match=r"Re-drive 1 dead letter\?"):
        run("redrive_events")
    with pytest.raises(CommandError, match=r"Discard 1 dead letter\?"):
        run("discard_events")


@pytest.mark.parametrize(
    "env", [{"PYTHONUNBUFFERED": ""}, {"PYTHONUNBUFFERED": "1"}], ids=["at the end", "at once"]
)
@pytest.mark.parametrize("command", ["redrive_events --dry-run", "eventbus_subscriptions --json"])
def test_a_command_whose_reader_has_gone_ends_quietly(manage, command, env):
    script = '"$0" -m django "$@" | true'
    program = ("bash", "-o", "pipefail", "-c", script, sys.executable)

    ended = manage.run(*command.split(), program=program, env=env, is_measured=True)

    assert (ended.output, ended.returncode) == ("", 128 + signal.SIGPIPE)


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
