"""Management commands in processes of their own, on the database of the running test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from django.db import connection

from tests.support.databases import database_url
from tests.support.fork_server import AT_THE_START, IS_AVAILABLE, Forked, ForkServer
from tests.support.helpers import eventually
from tests.support.kill_points import CRASH_AT, KILL_AT, POINT_LOG

ROOT = Path(__file__).parent.parent.parent
#: Whether the pass of the other database has run what does not depend on the database.
IS_SECOND_PASS = bool(os.environ.get("EVENTBUS_TEST_SECOND_PASS"))
#: A command begins as a fork of a process that has imported Django.
FORKED = ("-m", "django")
#: A command begins with an interpreter of its own, as in production.
DJANGO = (sys.executable, "-m", "django")


#: What differs between processes of one environment, and is read after the settings.
OF_ONE_PROCESS = {KILL_AT, POINT_LOG, "PGAPPNAME", "PYTEST_CURRENT_TEST"}
#: An environment that is asked for so often gets a server of its own.
OFTEN = 5


class ForkServers:
    """A cold server, and warm ones for environments that are asked for often."""

    def __init__(self) -> None:
        self._servers: dict[frozenset[tuple[str, str]], ForkServer] = {}
        self._asked: Counter[frozenset[tuple[str, str]]] = Counter()

    def server_for(self, environment: Mapping[str, str]) -> ForkServer:
        shared = {name: environment[name] for name in environment.keys() - OF_ONE_PROCESS}
        key = frozenset(shared.items())
        self._asked[key] += 1
        is_ours = environment.get("DJANGO_SETTINGS_MODULE") == "tests.settings"
        if is_ours and self._asked[key] >= OFTEN and CRASH_AT not in environment:
            return self._get(key, shared)
        return self._get(frozenset(), None)

    def _get(self, key: frozenset[tuple[str, str]], shared: dict[str, str] | None) -> ForkServer:
        if key not in self._servers:
            self._servers[key] = ForkServer(shared)
        return self._servers[key]


FORK_SERVERS = ForkServers()


def start(
    program: Sequence[str], arguments: list[str], environment: dict[str, str], log: Path
) -> subprocess.Popen[bytes] | Forked:
    if program == FORKED:
        return start_python([*program, *arguments], environment, log)
    with log.open("wb") as stream:
        return subprocess.Popen(
            [*program, *arguments],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def start_python(
    words: Sequence[str],
    environment: Mapping[str, str],
    output: Path,
    *,
    errors: Path | None = None,
    directory: Path = ROOT,
) -> subprocess.Popen[bytes] | Forked:
    """Do what `python *words` does, without a new interpreter where that is possible."""
    if IS_AVAILABLE:
        server = FORK_SERVERS.server_for(environment)
        return server.start(words, environment, output, errors=errors, directory=directory)
    with output.open("wb") as stream, (errors or output).open("ab") as other:
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=other if errors else subprocess.STDOUT,
            start_new_session=True,
        )


class ManageProcess:
    """One command; its output goes to a file."""

    def __init__(
        self, program: Sequence[str], arguments: list[str], environment: dict[str, str], log: Path
    ):
        self.arguments = arguments
        self.log = log
        self.process = start(program, arguments, environment, log)

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
        program: Sequence[str] = FORKED,
    ) -> ManageProcess:
        """Start a command; *kill_at* is `name[:n]` of the audit event at which it dies."""
        if program == FORKED and "PYTHONPATH" in (env or {}):
            # It may hide or replace what the fork server has imported.
            program = DJANGO
        log = self.directory / f"manage-{len(self.processes)}.log"
        points = {KILL_AT: kill_at, POINT_LOG: str(point_log)}
        environment = {**os.environ, **self.environment(), **points, **(env or {})}
        if IS_SECOND_PASS if is_measured is None else not is_measured:
            # Coverage costs a process half of its time, and the first pass runs it too.
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
            **AT_THE_START,
        }

    def close(self) -> None:
        """Kill what still runs, and end its sessions on the database server."""
        # One that cannot be killed must not save the others: they would take later tests' events.
        with ExitStack() as kills:
            for process in self.processes:
                kills.callback(process.kill)
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
