"""The tests' databases as URLs, so that a subprocess can be pointed at the same one."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

SQLITE_OPTIONS = {
    "timeout": 20,
    "transaction_mode": "IMMEDIATE",
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
}
#: Do not wait for the disk at each commit. Only for a server that no test crashes: it would
#: forget what it has just committed.
HASTY = "-c synchronous_commit=off"


def database_settings(url: str) -> dict[str, Any]:
    """Return Django's settings for *url*: `postgres://…` or `sqlite:///path`."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        # Three slashes end the authority: "sqlite:////tmp/x" is the file /tmp/x.
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": unquote(parts.path[1:]),
            "OPTIONS": {} if parts.query == "plain" else dict(SQLITE_OPTIONS),
        }
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path[1:]),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
        "OPTIONS": {"options": HASTY} if parts.query == "hasty" else {},
    }


def database_url(settings: dict[str, Any]) -> str:
    """Return the URL of the database that *settings* name: the inverse of database_settings."""
    name = quote(str(settings["NAME"]))
    if "sqlite" in settings["ENGINE"]:
        return f"sqlite:///{name}"
    user = quote(settings["USER"], safe="")
    if settings["PASSWORD"]:
        user = f"{user}:{quote(settings['PASSWORD'], safe='')}"
    address = f"{settings['HOST']}:{settings['PORT']}".rstrip(":")
    query = "?hasty" if settings.get("OPTIONS", {}).get("options") == HASTY else ""
    return f"postgres://{user}@{address}/{name}{query}"


def sqlite_database() -> dict[str, Any]:
    """Return the settings of a database file in the directory of this run."""
    directory = run_directory()
    settings = database_settings(f"sqlite:///{directory}/eventbus.sqlite3")
    # A file also for the test database: subprocesses and threads have to share it.
    return {**settings, "TEST": {"NAME": str(directory / "test.sqlite3")}}


def postgres_database(url: str) -> dict[str, Any]:
    """Return the settings of a test database with a name of this run only."""
    return {**database_settings(f"{url}?hasty"), "TEST": {"NAME": f"test_eventbus_{run_name()}"}}


def run_name() -> str:
    """Return a name that the processes of one run share, and no other run has."""
    return os.environ.setdefault("EVENTBUS_TEST_RUN", uuid.uuid4().hex[:8])


def run_directory() -> Path:
    """Return the directory of this run; the process that made it removes it."""
    if "EVENTBUS_TEST_DIRECTORY" not in os.environ:
        directory = tempfile.mkdtemp(prefix="eventbus-tests-")
        os.environ["EVENTBUS_TEST_DIRECTORY"] = directory
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(os.environ["EVENTBUS_TEST_DIRECTORY"])
