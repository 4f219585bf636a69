"""Start, watch and stop the processes of the shop."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MANAGE = Path(__file__).resolve().parent.parent / "manage.py"
#: Seconds from SIGTERM to SIGKILL.
PATIENCE = 5
TAIL = 15


class DemoFailed(Exception):
    """The demo cannot continue. The text is for the user."""


class Process:
    """One management command; its output goes to a file."""

    def __init__(self, log: Path, *arguments: str, environment: dict[str, str]) -> None:
        self.name = arguments[0]
        self.log = log
        with self.log.open("wb") as stream:
            # In its own session, Ctrl-C reaches only the demo, which then stops the processes.
            self._process = subprocess.Popen(
                [sys.executable, str(MANAGE), *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(f"    {line}" for line in lines[-TAIL:])

    def refuse_end(self) -> None:
        """Raise DemoFailed with the end of its log if it has ended."""
        code = self._process.poll()
        if code is not None:
            raise DemoFailed(f"{self.name} ended with {code}. Its last lines:\n{self.tail}")

    def terminate(self) -> None:
        self._process.terminate()

    def stop(self) -> None:
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Shop:
    """The web server and the consumer with its relay."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.address = f"127.0.0.1:{port}"
        self.processes: list[Process] = []

    @property
    def url(self) -> str:
        return f"http://{self.address}/"

    def start(self, *arguments: str) -> None:
        log = self.directory / f"{arguments[0]}.log"
        # The port is not known before.
        environment = {**os.environ, "PARTNER_URL": f"{self.url}partner/"}
        self.processes.append(Process(log, *arguments, environment=environment))

    @property
    def tails(self) -> str:
        return "\n".join(f"{each.name} said last:\n{each.tail}" for each in self.processes)

    def refuse_end(self) -> None:
        for process in self.processes:
            process.refuse_end()

    def stop(self) -> None:
        # Ignore a second signal, which could leave a process running. PATIENCE limits the wait.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.stop()


@contextmanager
def running_shop(directory: Path, port: int) -> Iterator[Shop]:
    shop = Shop(directory, port)
    try:
        shop.start("runserver", "--noreload", shop.address)
        shop.start("consume_events", "--with-relay", "--fail-fast")
        yield shop
    finally:
        shop.stop()


@contextmanager
def reserved_port(preferred: int) -> Iterator[int]:
    """Yield *preferred* if it is free and no other demo has reserved it, else any free port."""
    # A demo reserves the port with the UDP port of the same number, until its web server starts.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as token:
        try:
            token.bind(("127.0.0.1", preferred))
        except OSError:
            preferred = 0
        yield free_port(preferred)


def free_port(preferred: int) -> int:
    """Return *preferred* if no process listens there, else any free port; 0 means any."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            # Like the web server. Otherwise a connection that has just ended would block the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return probe.getsockname()[1]
    raise DemoFailed("There is no free port on 127.0.0.1.")
