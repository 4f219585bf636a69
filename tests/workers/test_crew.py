"""Loops that stop and fail together."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest
from django.db import connection
from django.db.utils import ConnectionHandler

from django_eventbus.exceptions import EventBusError
from django_eventbus.workers import silent_databases
from django_eventbus.workers.crew import Crew, LoopFailed
from django_eventbus.workers.silent_databases import KEEPALIVES, set_keepalives
from tests.support.databases import database_url
from tests.support.tcp_proxy import TcpProxy


class Refused(EventBusError):
    """Takes so long to describe itself that another loop can fail meanwhile."""

    def __init__(self, meeting: threading.Barrier) -> None:
        self.meeting = meeting

    def __str__(self) -> str:
        with suppress(threading.BrokenBarrierError):
            self.meeting.wait(0.5)
        return "The broker refused the login."


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("command", ["relay_events", "consume_events"])
def test_a_database_that_went_silent_does_not_keep_a_process_that_is_stopped(manage, command):
    server = connection.settings_dict
    with TcpProxy(int(server["PORT"] or 5432), server["HOST"] or "127.0.0.1") as proxy:
        behind = database_url({**server, "HOST": "127.0.0.1", "PORT": str(proxy.port)})
        worker = manage(command, env={"EVENTBUS_TEST_DATABASE_URL": behind})
        worker.wait_for("Press Ctrl-C")
        proxy.go_silent()

        worker.terminate()

        # With 0 if it was just connecting, which has a timeout; with 1 if it waited for a result.
        assert worker.wait(60) in (0, 1), worker.output


def test_keepalives_are_set_where_the_project_sets_none(monkeypatch):
    databases = [
        {"ENGINE": "django.db.backends.postgresql", "OPTIONS": {"keepalives_idle": 60}},
        {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
    ]
    handler = ConnectionHandler(dict(zip(["default", "other"], databases, strict=True)))
    monkeypatch.setattr(silent_databases, "connections", handler)

    set_keepalives()

    assert handler.databases["default"]["OPTIONS"] == {**KEEPALIVES, "keepalives_idle": 60}
    assert handler.databases["other"]["OPTIONS"] == {}


def test_two_loops_that_are_refused_at_once_are_reported_once(caplog):
    crew, meeting = Crew(), threading.Barrier(2)

    def loop() -> None:
        raise Refused(meeting)

    crew.add("relay", loop)
    crew.add("handler", loop)
    with pytest.raises(LoopFailed, match="stopped: The broker refused the login"):
        crew.run()

    assert len([each for each in caplog.messages if "stopped" in each]) == 1
    assert crew.stop.is_set()
