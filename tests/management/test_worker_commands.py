"""The commands: what they take, how they end, and what they say then."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from django_eventbus import publish
from django_eventbus.events.message import uuid7
from django_eventbus.management import commands
from django_eventbus.models import DeadLetter, OutboxEvent, QueuedMessage, RelayLease
from tests.end_to_end.oracle import FAST, is_at_rest
from tests.shop.models import Effect
from tests.support.bus import table_away
from tests.support.databases import database_url
from tests.support.helpers import eventually
from tests.support.processes import ROOT

pytestmark = pytest.mark.django_db(transaction=True)


def settings_of(**changes):
    return {
        "EVENTBUS_TEST_SETTINGS": json.dumps(
            {**json.loads(FAST["EVENTBUS_TEST_SETTINGS"]), **changes}
        )
    }


def count_up(times):
    for number in range(times):
        publish("count.up", {"number": number})


#: Each command, and what it says at its end without any events.
COMMANDS = {
    "consume_events --burst": "Press Ctrl-C to stop.",
    "discard_events --yes": "No dead letters match this filter.",
    "eventbus_doctor": "apply to database://.",
    "eventbus_ping --timeout 10ms": "ROUND TRIP",
    "eventbus_status": "Outbox: 0 ready",
    "eventbus_topology": "database://",
    "eventbus_subscriptions": "shop.witness",
    "eventbus_dlq acts": "CommandError: There is no DLQ here: ",
    "prune_events --older-than 1d": "0",
    "redrive_events --yes": "No dead letters match this filter.",
    "relay_events --once": "Press Ctrl-C to stop.",
    "eventbus_plan 1 pause": "CommandError: There is no plan 1.",
}


def test_every_command_starts_by_manage_py(manage):
    """Other tests fork commands; see tests/support/fork_server.py."""
    package = Path(commands.__file__).parent
    program = (sys.executable, "example_project/manage.py")
    environment = {**FAST, "PYTHONPATH": str(ROOT)}

    started = {}
    for line in COMMANDS:
        started[line] = manage(*line.split(), env=environment, program=program)
        if line.startswith("consume_events"):
            # It declares what the doctor and the topology are asked about.
            started[line].wait()
    for line, words in COMMANDS.items():
        assert started[line].wait() in (0, 1)
        assert words in started[line].output
        assert "Traceback" not in started[line].output

    named = {path.stem for path in package.glob("[!_]*.py")}
    assert {line.split()[0] for line in COMMANDS} == named


def test_relay_once_publishes_what_is_ready_and_exits(manage):
    manage.run("relay_events", "--once", env=FAST)
    count_up(5)

    relay = manage.run("relay_events", "--once", "--batch-size", "2", env=FAST)

    assert relay.returncode == 0, relay.output
    assert "Relaying the outbox of 'default' to shop.events." in relay.output
    assert QueuedMessage.objects.count() == 5


@pytest.mark.parametrize("command", ["relay_events", "consume_events"])
def test_with_fail_fast_an_unreachable_broker_ends_the_command(manage, command):
    environment = settings_of(BROKER_URL="amqp://user:hunter2@127.0.0.1:1")

    ended = manage.run(command, "--fail-fast", env=environment)

    assert ended.returncode == 1
    said = ended.output.splitlines()[-1]
    assert said == "CommandError: The broker at amqp://127.0.0.1:1// does not answer."
    assert "Traceback" not in ended.output


@pytest.mark.postgres
def test_with_fail_fast_an_unreachable_database_ends_the_command(manage):
    environment = {**FAST, "EVENTBUS_TEST_DATABASE_URL": "postgres://nobody@127.0.0.1:1/nowhere"}

    ended = manage.run("relay_events", "--fail-fast", env=environment)

    assert ended.returncode == 1
    assert "CommandError: The database 'default' does not answer" in ended.output.splitlines()[-1]


def test_with_fail_fast_a_command_runs_if_all_is_there(manage):
    count_up(1)

    ended = manage.run("consume_events", "--fail-fast", "--with-relay", "--burst", env=FAST)

    assert ended.returncode == 0, ended.output
    assert Effect.objects.count() == 1


def test_burst_works_until_nothing_is_due_and_exits(manage):
    count_up(5)
    publish("act.now", {"do": "fail once"})

    worker = manage.run("consume_events", "--with-relay", "--burst", env=FAST)

    assert worker.returncode == 0, worker.output
    assert not OutboxEvent.objects.exclude(state="published").exists()
    assert Effect.objects.filter(subscription="shop.count").count() == 5


def test_once_takes_one_message_and_exits_also_if_there_is_none(manage):
    assert manage.run("consume_events", "--once", env=FAST).returncode == 0
    count_up(3)
    manage.run("relay_events", "--once", env=FAST)

    worker = manage.run("consume_events", "--once", env=FAST)

    assert worker.returncode == 0, worker.output
    assert Effect.objects.count() == 1


def test_max_messages_waits_for_so_many_and_exits(manage):
    worker = manage("consume_events", "--with-relay", "--max-messages", "3", env=FAST)
    worker.wait_for("Consuming")
    count_up(5)

    assert worker.wait() == 0
    assert Effect.objects.count() == 3


def test_only_the_named_queue_is_consumed(manage):
    publish("count.up", {})
    publish("act.now", {"do": "ok"})

    options = ("--with-relay", "--burst", "--queue", "counts", "--concurrency", "2")
    worker = manage.run("consume_events", *options, env=FAST)

    assert "Consuming shop.shop-tests.counts with" in worker.output
    assert Effect.objects.get().subscription == "shop.count"
    assert QueuedMessage.objects.get().queue == "shop.shop-tests.acts"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"SERVICE": None}, "eventbus.E003: EVENTBUS['SERVICE']"),
        ({"TRYS": 3}, "eventbus.E002: EVENTBUS has an unknown key 'TRYS'. Did you mean TRIES?"),
        ({"BROKER_URL": "smoke://user:secret@hill"}, "unknown scheme 'smoke'"),
    ],
)
def test_a_broken_configuration_is_one_sentence_and_non_zero(manage, changes, sentence):
    worker = manage.run("consume_events", env=settings_of(**changes))

    assert worker.returncode == 1
    assert sentence in worker.output
    assert len(worker.output.strip().splitlines()) == 1
    assert "secret" not in worker.output


def test_a_project_without_django_s_admin_passes_its_checks(manage):
    checked = manage.run("check", env=FAST)

    assert checked.returncode == 0, checked.output


def test_missing_tables_are_named_with_the_remedy(manage, tmp_path):
    empty = {"EVENTBUS_TEST_DATABASE_URL": f"sqlite:///{tmp_path}/empty.sqlite3"}

    worker = manage.run("consume_events", env=empty)

    assert worker.returncode == 1
    assert "run `manage.py migrate`" in worker.output.splitlines()[-1]


def test_an_unexpected_error_in_the_loop_is_critical_and_non_zero(manage):
    worker = manage("consume_events", env=FAST)
    worker.wait_for("Consuming")

    with table_away("eventbus_queuedmessage"):
        assert worker.wait() == 1

    assert "stopped because of an unexpected error" in worker.output
    assert worker.output.splitlines()[-1].startswith("CommandError: The handler")


def test_a_signal_during_the_checks_ends_the_command_without_an_error(manage, tmp_path):
    app = tmp_path / "signalled"
    app.mkdir()
    (app / "__init__.py").touch()
    (app / "apps.py").write_text(
        "import os, signal\n"
        "from django.apps import AppConfig\n"
        "class Signalled(AppConfig):\n"
        "    name = 'signalled'\n"
        "    def ready(self):\n"
        "        from django_eventbus import checks\n"
        "        checks.CHECKS = [send, *checks.CHECKS]\n"
        "def send(*args, **kwargs):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return []\n"
    )
    (tmp_path / "with_signal.py").write_text(
        "from tests.settings import *\nINSTALLED_APPS = [*INSTALLED_APPS, 'signalled']\n"
    )
    env = {"DJANGO_SETTINGS_MODULE": "with_signal", "PYTHONPATH": str(tmp_path)}

    started = manage("consume_events", env=env)

    assert started.wait() == 0, started.output
    assert "Finishing" in started.output


def test_a_relay_that_is_idle_stops_on_sigterm(manage):
    relay = manage("relay_events", env=FAST)
    relay.wait_for("Relaying")

    relay.terminate()

    assert relay.wait(5) == 0


def test_a_worker_that_is_idle_stops_on_ctrl_c(manage):
    worker = manage("consume_events", "--with-relay", env=FAST)
    worker.wait_for("Consuming")

    worker.interrupt()

    assert worker.wait(5) == 0


def test_an_unknown_queue_or_database_is_refused_by_name(no_subscriptions, bus):
    bus.subscribe("order.*", queue="billing")(lambda event: None)

    with pytest.raises(
        CommandError, match=r"No subscription uses a queue 'shipping'\. The queues are"
    ):
        call_command("consume_events", "--queue", "shipping")
    with pytest.raises(CommandError, match="There is no database 'nowhere'"):
        call_command("relay_events", "--database", "nowhere")


def test_a_service_without_subscriptions_has_nothing_to_consume(no_subscriptions, db):
    with pytest.raises(CommandError, match="There are no subscriptions"):
        call_command("consume_events", "--once")


@pytest.mark.parametrize("number", ["0", "-1", "many"])
def test_a_number_must_be_one(db, number):
    with pytest.raises(CommandError, match="is not a whole number of 1 or more"):
        call_command("relay_events", f"--batch-size={number}")


def test_a_full_life_by_commands_alone(manage):
    publish("act.now", {"do": "fail"})

    worker = manage("consume_events", "--with-relay", env=FAST)
    eventually(lambda: DeadLetter.objects.exists() and is_at_rest(), timeout=20)
    worker.terminate()

    assert worker.wait() == 0
    assert "Parked act.now" in worker.output


@pytest.mark.sqlite
def test_relay_once_waits_for_its_turn_instead_of_leaving_rows_behind(manage):
    count_up(1)
    other = uuid7()
    RelayLease.objects.acquire(other, 60)

    relay = manage("relay_events", "--once", env=FAST)
    relay.wait_for("Another relay holds the outbox")
    RelayLease.objects.release(other)

    assert relay.wait() == 0
    assert not OutboxEvent.objects.filter(state="ready").exists()


@pytest.mark.sqlite
def test_a_worker_shows_the_warnings_of_the_checks(manage, tmp_path):
    plain = {"EVENTBUS_TEST_DATABASE_URL": f"sqlite:///{tmp_path}/x.sqlite3?plain"}

    worker = manage.run("consume_events", env=plain)

    assert "eventbus.W001" in worker.output


@pytest.mark.postgres
def test_a_database_that_does_not_exist_ends_the_command_with_its_name(manage):
    url = database_url({**connection.settings_dict, "NAME": "no_such_database"})

    worker = manage.run("consume_events", env={"EVENTBUS_TEST_DATABASE_URL": url})

    assert worker.returncode == 1
    assert "no_such_database" in worker.output.splitlines()[-1]
