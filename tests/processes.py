"""Management commands in processes of their own, on the database of the running test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

from django.db import connection

from tests.databases import database_url
from tests.helpers import eventually
from tests.kill_points import KILL_AT, POINT_LOG

ROOT = Path(__file__).parent.parent
DJANGO = (sys.executable, "-m", "django")


class ManageProcess:
    """One command; its output goes to a file."""

    def __init__(
        self, program: Sequence[str], arguments: list[str], environment: dict[str, str], log: Path
    ):
        self.arguments = arguments
        self.log = log
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                [*program, *arguments],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code (-9 after a SIGKILL), or None while it runs."""
        return self.process.poll()

    @property
    def is_running(self) -> bool:
        return self.returncode is None

    @property
    def output(self) -> str:
        """Everything it has written so far, on stdout and stderr."""
        return self.log.read_text(errors="replace")

    def wait(self, timeout: float = 30) -> int:
        """Return its exit code; fail with its output when it does not end in time."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            # The fault handler then writes where each of its threads is.
            self.process.send_signal(signal.SIGABRT)
            self.process.wait(5)
            raise AssertionError(f"{self} still runs after {timeout} s:\n{self.output}") from None

    def wait_for(self, text: str, timeout: float = 30) -> None:
        """Return when its output contains *text*; fail when it ends or stays silent."""

        def is_said() -> bool:
            ended = not self.is_running
            if text in self.output:
                return True
            assert not ended, f"{self} ended without saying {text!r}:\n{self.output}"
            return False

        eventually(is_said, timeout=timeout, message=lambda: f"{self} said:\n{self.output}")

    def terminate(self) -> None:
        """Ask it to finish, as a supervisor does."""
        self.process.send_signal(signal.SIGTERM)

    def interrupt(self) -> None:
        """Ask it to finish, as Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)

    def kill(self) -> int:
        """Kill it and its children, and return its exit code."""
        if self.is_running:
            os.killpg(self.pid, signal.SIGKILL)
        return self.wait()

    def __str__(self) -> str:
        return " ".join(self.arguments)


class Manage:
    """Start management commands; close() ends every one of them."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.name = f"eventbus-tests-{uuid.uuid4().hex[:8]}"
        self.processes: list[ManageProcess] = []

    def __call__(
        self,
        *arguments: object,
        env: dict[str, str] | None = None,
        kill_at: str = "",
        point_log: Path | str = "",
        is_measured: bool | None = None,
        program: Sequence[str] = DJANGO,
    ) -> ManageProcess:
        """Start a command; *kill_at* is `name[:n]` of the audit event at which it dies."""
        log = self.directory / f"manage-{len(self.processes)}.log"
        points = {KILL_AT: kill_at, POINT_LOG: str(point_log)}
        environment = {**os.environ, **self.environment(), **points, **(env or {})}
        if not (connection.vendor == "sqlite" if is_measured is None else is_measured):
            # Coverage costs a process half of its time, and the SQLite pass runs it too.
            environment.pop("COVERAGE_PROCESS_CONFIG", None)
        process = ManageProcess(program, [str(each) for each in arguments], environment, log)
        self.processes.append(process)
        return process

    def run(self, *arguments: object, timeout: float = 30, **options: object) -> ManageProcess:
        """Start a command, wait until it has ended, and return it."""
        process = self(*arguments, **options)  # type: ignore[arg-type]
        process.wait(timeout)
        return process

    def environment(self) -> dict[str, str]:
        return {
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "EVENTBUS_TEST_DATABASE_URL": database_url(connection.settings_dict),
            "EVENTBUS_TEST_LEAN": "1",
            "PGAPPNAME": self.name,
            "PYTHONFAULTHANDLER": "1",
            "PYTHONUNBUFFERED": "1",
        }

    def close(self) -> None:
        """Kill what still runs, and end its sessions on the database server."""
        for process in self.processes:
            process.kill()
        if self.processes and connection.vendor == "postgresql":
            eventually(self.has_no_sessions, message="Sessions of killed processes remain.")

    def has_no_sessions(self) -> bool:
        # A session of a dead client that waits for a lock does not notice the death,
        # and would hold up the flush after the test.
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = %s",
                [self.name],
            )
            return not cursor.fetchall()
