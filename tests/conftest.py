"""Fixtures, and the choice of tests for the database of this pass."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage
from django.conf import settings
from django.core.management.commands import flush
from django.db import connection

from tests.support import services
from tests.support.amqp import amqp as amqp
from tests.support.bus import bus as bus
from tests.support.bus import no_subscriptions as no_subscriptions
from tests.support.buses import hands as hands
from tests.support.own_broker import own_broker as own_broker
from tests.support.own_broker import own_node as own_node
from tests.support.processes import IS_SECOND_PASS, Manage
from tests.support.skipping import NEEDS, skipped_if_missing

#: They look at every page, which others try one by one.
WALKS = ("test_languages.py",)
#: Directories of tests that take long.
LONG = ("browser", "end_to_end", "rabbitmq", "other_buses")
#: Permissions and content types: no test changes them.
MADE_BY_MIGRATIONS = ("django_content_type", "auth_permission")
APPEND_ONLY = "eventbus_auditentry"
DATABASE_FIXTURES = {"db", "transactional_db", "django_db_setup"}

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # A suite in the background is started so, and what it starts would not be stopped by Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def manage(transactional_db: None, tmp_path: Path) -> Iterator[Manage]:
    """Run management commands as processes on the test's database; see tests/support/processes.py."""
    starter = Manage(tmp_path)
    try:
        yield starter
    finally:
        starter.close()


@pytest.fixture(scope="session", autouse=True)
def _quick_flush() -> Iterator[None]:
    """Empty tables quickly after each test that commits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(connection.ops), "sql_flush", quick_flush)
        # It would make the rows again that are left where they are.
        patch.setattr(flush, "emit_post_migrate_signal", lambda *_, **__: None)
        yield


def quick_flush(operations: Any, style: Any, tables: list[str], **options: bool) -> list[str]:
    # On PostgreSQL, TRUNCATE makes a new file for each table and index, which takes a hundred
    # times as long as deleting a few rows.
    emptied = [table for table in tables if table not in MADE_BY_MIGRATIONS]
    return [statement_to_empty(operations, table) for table in emptied]


def statement_to_empty(operations: Any, table: str) -> str:
    name = operations.quote_name(table)
    if table == APPEND_ONLY and operations.connection.vendor == "postgresql":
        # A trigger refuses to delete its rows.
        return f"DO $$ BEGIN IF EXISTS (SELECT FROM {name}) THEN TRUNCATE {name}; END IF; END $$;"
    return f"DELETE FROM {name};"


@pytest.fixture(scope="session")
def rabbitmq_url() -> str:
    """The URL of the broker that the tests share: use names of your own on it."""
    with skipped_if_missing():
        return services.rabbitmq_url()


@pytest.fixture
def private_postgres() -> Iterator[services.PrivatePostgres]:
    """A PostgreSQL that the test may stop, crash and restart."""
    with skipped_if_missing(), services.private_postgres() as server:
        yield server


@pytest.fixture
def private_rabbitmq() -> Iterator[services.PrivateRabbitmq]:
    """A RabbitMQ that the test may stop, kill and restart."""
    with skipped_if_missing(), services.private_rabbitmq() as server:
        yield server


@pytest.fixture(autouse=True)
def _broker(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("rabbitmq"):
        request.getfixturevalue("rabbitmq_url")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep what this pass is for: the other database's pass runs the rest."""
    items.sort(key=turn)
    deselected = [item for item in items if not belongs_here(item)]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if belongs_here(item)]


def belongs_here(item: pytest.Item) -> bool:
    """Tell whether this pass runs the test: on the right database, and not a second time."""
    is_postgres = "postgresql" in settings.DATABASES["default"]["ENGINE"]
    needed, other = ("postgres", "sqlite") if is_postgres else ("sqlite", "postgres")
    if item.get_closest_marker(needed):
        return True
    return not item.get_closest_marker(other) and (not IS_SECOND_PASS or is_for_both(item))


def is_for_both(item: pytest.Item) -> bool:
    """Tell whether the outcome may depend on the database."""
    if not item.get_closest_marker("both_databases") or item.get_closest_marker("rabbitmq"):
        return False
    touches = item.get_closest_marker("django_db")
    return bool(touches or DATABASE_FIXTURES & set(getattr(item, "fixturenames", ())))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Measure no walk over all pages: measuring takes a third of its time."""
    is_walk = item.path.parent.name == "browser" or item.path.name in WALKS
    with unmeasured() if is_walk else nullcontext():
        return (yield)


@contextmanager
def unmeasured() -> Iterator[None]:
    running = Coverage.current()
    if running is None:
        yield
        return
    running.stop()
    try:
        yield
    finally:
        running.start()


def turn(item: pytest.Item) -> tuple[bool, bool]:
    """Put the long ones first, so that no worker is left alone with one of them at the end."""
    return item.get_closest_marker("xdist_group") is None, item.path.parent.name not in LONG


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly what was not run, and leave the counts for tests/support/suite.py."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = [reason_of(report) for report in skipped]
    missing = [reason.removeprefix(NEEDS) for reason in reasons if reason.startswith(NEEDS)]
    if missing:
        terminalreporter.section("NOT RUN", sep="!", red=True, bold=True)
        for reason in sorted(set(missing)):
            terminalreporter.line(f"{missing.count(reason)} tests, for want of {reason}")
    if path := os.environ.get("EVENTBUS_TEST_REPORT"):
        Path(path).write_text(json.dumps({**counts(terminalreporter), "missing": missing}))


def reason_of(report: pytest.TestReport) -> str:
    """Return why a test was skipped, as it was given to pytest.skip()."""
    longrepr = report.longrepr
    return longrepr[2].removeprefix("Skipped: ") if isinstance(longrepr, tuple) else ""


def counts(terminalreporter: pytest.TerminalReporter) -> dict[str, int]:
    session = terminalreporter.config.pluginmanager.get_plugin("session")
    stats = {name: len(reports) for name, reports in terminalreporter.stats.items()}
    return {
        "passed": stats.get("passed", 0),
        "failed": stats.get("failed", 0) + stats.get("error", 0),
        "skipped": stats.get("skipped", 0) + stats.get("xfailed", 0),
        "collected": session.testscollected,
    }
