"""The pytest plugin in projects of others, as processes: with Django, with a broker, with neither."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.helpers import plugin_arguments

ROOT = Path(__file__).parent.parent.parent

SETTINGS = """
SECRET_KEY = "x"
INSTALLED_APPS = ["django_eventbus", "shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
EVENTBUS = {"SERVICE": "shop", "BROKER_URL": "amqp://nobody:hunter2@nowhere:1/"}
"""

SUBSCRIBERS = """
from django_eventbus import publish, subscribe

@subscribe("order.placed", queue="billing", retry=["5m"])
def bill(event):
    if event.payload["total"] < 0:
        raise ValueError("no")
    publish("order.billed", event.payload)
"""

TESTS = """
import pytest
from django.conf import settings as configured
from django.test import TestCase
from django_eventbus import publish
from django_eventbus.testing import EventBusMixin, Park, Retry

@pytest.mark.django_db
def test_an_ordinary_test(eventbus):
    publish("order.placed", {"total": 1})
    eventbus.drain()
    eventbus.assert_published("order.billed", total=1)

def test_without_a_mark(eventbus):
    publish("order.placed", {"total": -1})
    assert [type(each) for each in eventbus.drain().outcomes] == [Retry, Park]
    assert [each.error_type for each in eventbus.parked] == ["ValueError"]

@pytest.mark.django_db(transaction=True)
def test_a_committing_test(eventbus):
    publish("order.placed", {"total": 1})
    eventbus.drain()
    eventbus.assert_published("order.billed")

def test_settings_changed_before(settings, eventbus):
    settings.EVENTBUS = {**settings.EVENTBUS, "RETRY_DELAYS": [0]}
    publish("order.placed", {"total": 1})
    eventbus.drain()

def test_settings_are_back():
    assert configured.EVENTBUS["BROKER_URL"] == "amqp://nobody:hunter2@nowhere:1/"
    assert len(configured.EVENTBUS) == 2

class MixinTests(EventBusMixin, TestCase):
    def test_the_mixin(self):
        publish("order.placed", {"total": 1})
        self.eventbus.drain()
        self.eventbus.assert_published("order.billed", total=1)
        assert configured.EVENTBUS["BROKER_URL"].startswith(ON)

def test_on_the_chosen_broker(eventbus):
    assert configured.EVENTBUS["BROKER_URL"].startswith(ON)
"""


def run_pytest(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    hidden = ("DJANGO_SETTINGS_MODULE", "EVENTBUS_", "PYTEST_")
    kept = {name: each for name, each in os.environ.items() if not name.startswith(hidden)}
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:randomly"]
    return subprocess.run(
        [*command, *plugin_arguments(), *arguments],
        cwd=directory,
        env={**kept, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.fixture
def project(tmp_path: Path):
    """Write a project whose tests expect to be on a kind of broker."""

    def project(broker: str) -> Path:
        (tmp_path / "shop").mkdir()
        (tmp_path / "shop/__init__.py").write_text("")
        (tmp_path / "shop/subscribers.py").write_text(SUBSCRIBERS)
        (tmp_path / "project_settings.py").write_text(SETTINGS)
        (tmp_path / "test_shop.py").write_text(f"{TESTS}\nON = {broker!r}\n")
        return tmp_path

    return project


def test_ordinary_tests_run_without_a_broker(project):
    ended = run_pytest(project("database://"), "--ds=project_settings")

    assert "7 passed" in ended.stdout, ended.stdout + ended.stderr


@pytest.mark.rabbitmq
def test_the_same_tests_run_on_rabbitmq(project, rabbitmq_url):
    arguments = ("--ds=project_settings", f"--eventbus-broker={rabbitmq_url}")

    ended = run_pytest(project("amqp://"), *arguments)

    assert "7 passed" in ended.stdout, ended.stdout + ended.stderr


def test_a_project_without_django_notices_nothing(tmp_path: Path):
    (tmp_path / "test_it.py").write_text("def test_it():\n    assert True\n")

    for arguments in (["-p", "no:django"], []):
        ended = run_pytest(tmp_path, *arguments)
        assert "1 passed" in ended.stdout, ended.stdout + ended.stderr


ALONE = """
from django.db import connection

def test_it(client, eventbus):
    assert "memory" in str(connection.settings_dict["NAME"])
    assert eventbus.published == []
"""


def test_the_fixture_alone_keeps_a_test_away_from_the_real_database(project):
    directory = project("database://")
    settings = SETTINGS.replace(":memory:", str(directory / "real.sqlite3"))
    (directory / "project_settings.py").write_text(settings)
    (directory / "test_shop.py").write_text(ALONE)

    ended = run_pytest(directory, "--ds=project_settings")

    assert "1 passed" in ended.stdout, ended.stdout
    assert not (directory / "real.sqlite3").exists()


def test_the_fixture_needs_pytest_django(tmp_path: Path):
    (tmp_path / "test_it.py").write_text("def test_it(eventbus):\n    assert True\n")

    ended = run_pytest(tmp_path, "-p", "no:django")

    assert "fixture 'db' not found" in ended.stdout


def test_loading_the_plugin_loads_no_part_of_django():
    script = (
        "import sys, django_eventbus.testing.plugin\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'django'])"
    )

    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )

    assert ended.stdout.strip() == "[]"


def test_the_plugin_is_an_entry_point():
    project = (ROOT / "pyproject.toml").read_text()

    (module,) = re.findall(r"\[project.entry-points.pytest11\]\n\w+ = \"([\w.]+)\"", project)
    assert module == "django_eventbus.testing.plugin"
