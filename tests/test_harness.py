"""The crash tests stand on these: processes, kill points, private servers."""

from __future__ import annotations

import psycopg
import pytest

from tests.databases import database_settings, database_url
from tests.helpers import eventually
from tests.private_servers import free_port, is_free, reserve

AUDIT = "import sys; [sys.audit('eventbus.{}'.format(n)) for n in ('one', 'two', 'two')]"


@pytest.mark.parametrize(
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
