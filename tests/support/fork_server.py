"""Start management commands by forking a process that has imported Django.

A server has no connection and no thread, so that a child begins as a new interpreter does; only
the imports, which take most of a start, are done. A cold server has no settings either, and forks
for any environment. A warm one has set Django up, and forks for the environment it was given.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TO_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
IS_AVAILABLE = hasattr(os, "pidfd_open")
#: Read when an interpreter starts, so a child has them from the server.
AT_THE_START = {"PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1"}
#: None of them reads settings, opens a connection or starts a thread when it is imported.
LIBRARIES = (
    "coverage",
    "django.core.management.base",
    "django.core.management.commands.shell",
    "django.core.serializers.json",
    "django.db.backends.postgresql.base",
    "django.db.backends.sqlite3.base",
    "django.db.migrations.executor",
    "django.db.models",
    "django.test.utils",
    "django.urls",
    "django.utils.translation.reloader",
    "importlib.metadata",
    "msgspec",
    "opentelemetry.trace.propagation.tracecontext",
    "pika",
    "prometheus_client",
    "psycopg",
)


class ForkServer:
    """A server of this process, which it outlives by nothing; with an environment, a warm one."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._lock = threading.Lock()
        given = {**(environment or os.environ), **AT_THE_START}
        # Each child measures itself: a server that did would share its file with all of them.
        given.pop("COVERAGE_PROCESS_CONFIG", None)
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, *(["--warm"] if environment else [])],
            cwd=ROOT,
            env=given,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        atexit.register(self.close)

    def start(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        output: Path,
        *,
        errors: Path | None = None,
        directory: Path = ROOT,
    ) -> Forked:
        """Run `python *words`, which begin with `-m` or with a script; write to these files."""
        # The caller may read it before the child has opened it.
        output.touch()
        request = {
            "words": list(words),
            "environment": dict(environment),
            "output": str(output),
            "errors": str(errors or ""),
            "directory": str(directory),
        }
        return Forked(self, self.ask(request))

    def ask(self, request: dict[str, object]) -> int:
        with self._lock:
            assert self._process.stdin
            assert self._process.stdout
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            return int(self._process.stdout.readline())

    def close(self) -> None:
        """End the server and everything that it has started."""
        # Its input ends; Popen's own way waits for the process and closes both pipes.
        with self._process:
            pass
        atexit.unregister(self.close)


class Forked:
    """A child of the server, as subprocess.Popen would show it."""

    def __init__(self, server: ForkServer, pid: int):
        self.pid = pid
        self.returncode: int | None = None
        self._server = server
        self._descriptor = os.pidfd_open(pid)

    def poll(self) -> int | None:
        return self._ended_within(0)

    def wait(self, timeout: float | None = None) -> int:
        if self._ended_within(timeout) is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        # Until the server is asked for its exit code, a dead child keeps its pid.
        if self.poll() is None:
            os.kill(self.pid, number)

    def _ended_within(self, timeout: float | None) -> int | None:
        if self.returncode is None and self._has_ended(timeout):
            self.returncode = self._server.ask({"reap": self.pid})
            os.close(self._descriptor)
        return self.returncode

    def _has_ended(self, timeout: float | None) -> bool:
        # Not select(), which knows no descriptors above 1023.
        watched = select.poll()
        watched.register(self._descriptor, select.POLLIN)
        return bool(watched.poll(None if timeout is None else timeout * 1000))


def serve() -> dict[str, Any]:
    """Fork for each request; return the request in the child."""
    children: set[int] = set()
    while line := sys.stdin.buffer.readline():
        request = json.loads(line)
        if pid := request.get("reap"):
            _, status = os.waitpid(pid, 0)
            children.discard(pid)
            answer(os.waitstatus_to_exitcode(status))
        elif pid := fork_session():
            children.add(pid)
            answer(pid)
        else:
            return request
    for pid in children:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    sys.exit()


def fork_session() -> int:
    """Fork a child that leads a session of its own by the time its pid is known."""
    # Before that it has no process group, and a test that kills the group would miss it.
    reader, writer = os.pipe()
    if pid := os.fork():
        os.close(writer)
        os.read(reader, 1)
        os.close(reader)
        return pid
    os.setsid()
    os.close(reader)
    os.close(writer)
    return 0


def answer(number: int) -> None:
    os.write(1, f"{number}\n".encode())


def become(request: dict[str, Any]) -> None:
    """Make this child what a new interpreter would be after its start."""
    open_files(request["output"], request["errors"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["directory"])
    if os.environ.get("COVERAGE_PROCESS_CONFIG"):
        sys.modules["coverage"].process_startup()


def open_files(output: str, errors: str) -> None:
    """Give this process its own input, output and errors; without a name, errors are output."""
    replace(0, os.devnull, os.O_RDONLY)
    replace(1, output, TO_WRITE)
    if errors:
        replace(2, errors, TO_WRITE)
    else:
        os.dup2(1, 2)


def replace(descriptor: int, path: str, mode: int) -> None:
    opened = os.open(path, mode, 0o644)
    os.dup2(opened, descriptor)
    os.close(opened)


def run(words: list[str], path: list[str]) -> None:
    """Do what `python *words` does."""
    is_module = words[0] == "-m"
    first = os.getcwd() if is_module else str(Path(words[0]).resolve().parent)
    added = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:] = [first, *added, *path]
    sys.argv = words[1:] if is_module else words
    if is_module:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")


def own_path() -> list[str]:
    """Return where an interpreter looks for modules, whatever it was told to run."""
    added = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [each for each in sys.path[1:] if each not in added]


def set_up() -> None:
    """Do what each command does before it reads its arguments."""
    import django
    from django.core import management
    from django.db import connections

    django.setup()
    for name, app in management.get_commands().items():
        if app == "django_eventbus":
            management.load_command_class(app, name)
    assert threading.active_count() == 1
    assert not [each for each in connections.all(initialized_only=True) if each.connection]


def forget_tests() -> None:
    """A project of others may have a package of that name."""
    for name in [each for each in sys.modules if each.split(".")[0] == "tests"]:
        del sys.modules[name]


if __name__ == "__main__":
    is_warm = "--warm" in sys.argv
    standard = own_path()
    for library in LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(library)
    if is_warm:
        set_up()
    gc.freeze()
    work = serve()
    become(work)
    # The settings have read the variables of the server; these are the child's own.
    sys.modules["tests.support.kill_points"].install() if is_warm else forget_tests()
    # Nothing here catches anything: the child ends as every interpreter does.
    run(work["words"], standard)
