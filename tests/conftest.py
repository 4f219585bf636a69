"""Fixtures, and the choice of tests for the database of this pass."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from coverage import Coverage
from django.conf import settings
from django.db import connection

from tests import services
from tests.amqp import amqp as amqp
from tests.bus import bus as bus
from tests.bus import no_subscriptions as no_subscriptions
from tests.buses import hands as hands
from tests.own_broker import own_broker as own_broker
from tests.own_broker import own_node as own_node
from tests.processes import Manage
from tests.skipping import NEEDS, skipped_if_missing

#: They look at every page, which others try one by one.
WALKS = ("test_languages.py",)
#: Directories of tests that take long.
LONG = ("browser", "end_to_end", "rabbitmq", "seeds")
DATABASE_FIXTURES = {"db", "transactional_db", "django_db_setup"}

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # A suite in the background is started so, and what it starts would not be stopped by Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def manage(transactional_db: None, tmp_path: Path) -> Iterator[Manage]:
    """Run management commands as processes on the test's database; see tests/processes.py."""
    starter = Manage(tmp_path)
    try:
        yield starter
    finally:
        starter.close()


@pytest.fixture(scope="session", autouse=True)
def _quick_flush() -> None:
    # After each test Django empties the tables. On PostgreSQL, TRUNCATE makes a new file for
    # each table and index, which takes a hundred times as long as deleting a few rows.
    if connection.vendor == "postgresql":
        connection.ops.sql_flush = lambda style, tables, **options: [
            f"DELETE FROM {connection.ops.quote_name(table)};" for table in tables
        ]


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
    is_postgres = "postgresql" in settings.DATABASES["default"]["ENGINE"]
    belongs = belongs_to_postgres if is_postgres else belongs_to_sqlite
    deselected = [item for item in items if not belongs(item)]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if belongs(item)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Measure a test once, on SQLite if it runs there: measuring takes a third of its time."""
    has_run_on_sqlite = connection.vendor == "postgresql" and belongs_to_sqlite(item)
    is_walk = item.path.parent.name == "browser" or item.path.name in WALKS
    with unmeasured() if has_run_on_sqlite or is_walk else nullcontext():
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


def belongs_to_sqlite(item: pytest.Item) -> bool:
    return item.get_closest_marker("postgres") is None


def belongs_to_postgres(item: pytest.Item) -> bool:
    """Tell whether a test has to run here too: what touches no database has run on SQLite."""
    if item.get_closest_marker("postgres"):
        return True
    if item.get_closest_marker("sqlite"):
        return False
    touches = item.get_closest_marker("django_db")
    return bool(touches or DATABASE_FIXTURES & set(getattr(item, "fixturenames", ())))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly what was not run, and leave the counts for tests/suite.py."""
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
