"""The crash tests stand on these: processes, kill points, private servers."""

from __future__ import annotations

import json
import os
from pathlib import Path

import psycopg
import pytest

from tests.support.databases import database_settings, database_url
from tests.support.fork_server import IS_AVAILABLE, ForkServer
from tests.support.helpers import eventually
from tests.support.private_servers import free_port, is_free, reserve
from tests.support.processes import DJANGO, OFTEN
from tests.support.tables import table

AUDIT = "import sys; [sys.audit('eventbus.{}'.format(n)) for n in ('one', 'two', 'two')]"


@table(
    "url",
    ["sqlite:////tmp/a%20b/test.sqlite3_gw0", "postgres://me:p%40ss@127.0.0.1:5433/test_eventbus"],
)
def test_a_database_url_survives_the_way_to_a_subprocess(url):
    assert database_url(database_settings(url)) == url


def test_waiting_for_what_never_comes_fails_with_the_last_value():
    with pytest.raises(AssertionError, match=r"Last value: \[\]"):
        eventually(list, timeout=0)


def test_a_command_runs_on_the_database_of_the_test(manage):
    from tests.shop.models import Effect

    Effect.objects.create(event_id="1", subscription="charge")
    shown = "from tests.shop.models import Effect; print('rows:', Effect.objects.count())"

    command = manage.run("shell", "-c", shown)

    assert command.returncode == 0
    assert "rows: 1" in command.output


def test_a_process_dies_at_the_second_occurrence_of_its_kill_point(manage, tmp_path):
    log = tmp_path / "points"

    command = manage.run("shell", "-c", AUDIT, kill_at="eventbus.two:2", point_log=log)

    assert command.returncode == -9
    assert log.read_text().split() == ["eventbus.one", "eventbus.two", "eventbus.two"]


def test_a_process_without_kill_point_ends_by_itself(manage):
    assert manage.run("shell", "-c", AUDIT).returncode == 0


def test_a_crashed_private_postgres_keeps_what_was_committed(private_postgres):
    with psycopg.connect(private_postgres.url) as session:
        session.execute("CREATE TABLE kept AS SELECT 1 AS number")

    private_postgres.restart(mode="immediate")

    with psycopg.connect(private_postgres.url) as session:
        assert session.execute("SELECT number FROM kept").fetchall() == [(1,)]


def test_a_port_is_given_to_one_process_only():
    port = free_port()

    assert is_free(port)
    assert not reserve(port)


FACTS = """
import atexit, json, os, signal, sys, threading
facts = {
    "arguments": sys.argv[:2],
    "directory": os.getcwd(),
    "environment": dict(os.environ),
    "descriptors": sorted(set(os.listdir("/proc/self/fd")) - {str(os.dup(0))}),
    "handlers": {str(each): str(signal.getsignal(each)) for each in signal.valid_signals()},
    "is a leader": os.getsid(0) == os.getpgid(0) == os.getpid(),
    "path": sys.path,
    "streams": [(each.encoding, each.line_buffering) for each in (sys.stdout, sys.stderr)],
    "threads": threading.active_count(),
}
print(json.dumps(facts))
atexit.register(print, "ended")
"""


@pytest.mark.skipif(not IS_AVAILABLE, reason="Only Linux has it.")
def test_a_forked_command_is_like_one_with_an_interpreter_of_its_own(manage, tmp_path):
    command = ("shell", "--no-imports", "-c", FACTS)
    # No test before this one has asked for it so often that its server is warm.
    unused = {"EVENTBUS_TEST_UNUSED": str(tmp_path)}
    own = manage.run(*command, env=unused, program=DJANGO)

    cold, *_, warm = [manage.run(*command, env=unused) for _ in range(OFTEN)]

    for forked in (cold, warm):
        said = forked.output.splitlines()[-2:]
        assert json.loads(said[0]) == json.loads(own.output.splitlines()[-2])
        assert said[1] == "ended"
    assert cold.process._server is not warm.process._server


@pytest.mark.skipif(not IS_AVAILABLE, reason="Only Linux has it.")
def test_a_forked_command_leads_its_group_as_soon_as_it_is_known(manage):
    for _ in range(50):
        command = manage("shell", "-c", "import signal; signal.pause()")
        assert os.getpgid(command.pid) == os.getsid(command.pid) == command.pid
        assert command.kill() == -9


@pytest.mark.skipif(not IS_AVAILABLE, reason="Only Linux has it.")
def test_forked_commands_die_with_the_server_that_forked_them(tmp_path):
    server = ForkServer()
    script = "import signal; print('waiting'); signal.pause()"
    log = tmp_path / "log"
    forked = server.start(["-m", "django", "shell", "-c", script], lean_environment(), log)
    eventually(lambda: "waiting" in log.read_text())

    server.close()

    eventually(lambda: not Path(f"/proc/{forked.pid}").exists())


def lean_environment():
    settings = {"DJANGO_SETTINGS_MODULE": "tests.settings", "EVENTBUS_TEST_LEAN": "1"}
    return {**os.environ, **settings, "EVENTBUS_TEST_DATABASE_URL": "sqlite:///:memory:"}
