"""PostgreSQL and RabbitMQ from installed binaries, in temporary directories of their own."""

from __future__ import annotations

import atexit
import errno
import fcntl
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import BinaryIO, ClassVar

from tests.support.helpers import eventually
from tests.support.probes import Unavailable, postgres_answers, rabbitmq_answers
from tools import brokers

RABBITMQ_VERSION = "EVENTBUS_TEST_RABBITMQ"
#: Below those that the system hands out: while a server is down, nobody is given its port.
PORTS = range(20_000, 32_000)
# Not the generator that pytest-randomly seeds alike in every worker.
CHANCE = random.SystemRandom()


#: Held until the process ends: a port that is free now may be meant for a server to come.
RESERVATIONS: list[BinaryIO] = []


def free_port() -> int:
    while not (is_free(port := CHANCE.choice(PORTS)) and reserve(port)):
        pass
    return port


def is_free(port: int) -> bool:
    # An epmd listens on ::1 as well, whatever address it is told.
    with suppress(OSError), socket.create_server(("127.0.0.1", port)), other_loopback(port):
        return True
    return False


def other_loopback(port: int) -> AbstractContextManager[object]:
    if not socket.has_ipv6:
        return nullcontext()
    try:
        return socket.create_server(("::1", port), family=socket.AF_INET6)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise
        return nullcontext()


def reserve(port: int) -> bool:
    """Take *port* for this process, out of all that run tests on this machine."""
    directory = Path(tempfile.gettempdir(), f"eventbus-ports-{os.getuid()}")
    directory.mkdir(exist_ok=True)
    reservation = (directory / str(port)).open("ab")
    try:
        fcntl.flock(reservation, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        reservation.close()
        return False
    RESERVATIONS.append(reservation)
    return True


def binary(name: str, *places: str) -> str:
    """Return the path of a program from *places* (newest version first) or from PATH."""
    if found := newest(Path("/"), name, places) or shutil.which(name):
        return found
    raise Unavailable(f"{name} is not installed")


def newest(root: Path, name: str, places: Sequence[str]) -> str:
    """Return the path that the program has inside *root*, or ""."""
    candidates = [path for place in places for path in root.glob(f"{place}/{name}")]
    for path in sorted(candidates, key=lambda path: (len(str(path)), str(path)), reverse=True):
        return f"/{path.relative_to(root)}"
    return ""


def chosen_rabbitmq() -> str:
    """Return the version of RabbitMQ that EVENTBUS_TEST_RABBITMQ chooses, or ""."""
    return os.environ.get(RABBITMQ_VERSION, "")


def rabbitmq_command(name: str, *places: str) -> list[str]:
    """Return the command that runs a program of the chosen RabbitMQ, or of the installed one."""
    if not (version := chosen_rabbitmq()):
        return [binary(name, *places)]
    try:
        root = brokers.root_of(version)
    except brokers.Unfetched as problem:
        raise Unavailable(str(problem)) from problem
    if found := newest(root, name, places):
        return [*brokers.inside(root), found]
    raise Unavailable(f"{name} is not installed in {root}")


class PrivateServer:
    """A server in a temporary directory and on free ports: safe to stop and to kill."""

    name: ClassVar[str]
    stop_signals: ClassVar[dict[str, signal.Signals]]
    start_timeout: ClassVar[float] = 60

    def __init__(self) -> None:
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix=f"eventbus-{self.name.lower()}-"))
        self.process: subprocess.Popen[bytes] | None = None
        atexit.register(self.remove)

    @property
    def url(self) -> str:
        raise NotImplementedError

    @property
    def log(self) -> str:
        """The end of what the server has written."""
        return self.whole_log[-2000:]

    @property
    def whole_log(self) -> str:
        """Everything that the server has written."""
        return (self.directory / "server.log").read_text(errors="replace")

    def launch(self) -> subprocess.Popen[bytes]:
        raise NotImplementedError

    def answer(self, url: str) -> None:
        raise NotImplementedError

    def start(self) -> None:
        """Start it and return when it answers."""
        self.process = self.launch()
        eventually(self.is_up, timeout=self.start_timeout, message=lambda: self.log)

    def stop(self, mode: str = "fast") -> None:
        """Stop it; what it keeps on disk stays, for a later start()."""
        self.end(self.stop_signals[mode])

    def await_death(self, *, timeout: float, message: Callable[[], str]) -> None:
        """Return when it has ended by somebody else's hand."""
        process = self.process
        assert process
        eventually(lambda: process.poll() is not None, timeout=timeout, message=message)

    def kill(self) -> None:
        """Kill it without warning, with everything that it has started."""
        self.end(signal.SIGKILL)

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Make it stop answering, while its sockets stay open."""
        assert self.process
        os.killpg(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self.process.pid, signal.SIGCONT)

    def restart(self, mode: str = "fast") -> None:
        """Stop it in the given way and start it again, on the same port and data."""
        self.stop(mode)
        self.start()

    def end(self, number: signal.Signals) -> None:
        if self.process is None:
            return
        group = self.process.pid
        self.process.send_signal(number) if number != signal.SIGKILL else kill_group(group)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            kill_group(group)
        finally:
            self.process.wait(30)
            self.process = None

    def remove(self) -> None:
        """Kill it and delete its directory."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)
        atexit.unregister(self.remove)

    def is_up(self) -> bool:
        if self.process is None or self.process.poll() is not None:
            raise Unavailable(f"The private {self.name} ended at its start: {self.log}")
        with suppress(Unavailable):
            self.answer(self.url)
            return True
        return False

    def popen(self, command: list[str], **options: object) -> subprocess.Popen[bytes]:
        with (self.directory / "server.log").open("ab") as log:
            return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
                command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A group of its own: Ctrl-C in the terminal must not reach it.
                start_new_session=True,
                **options,
            )


def kill_group(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


class PrivatePostgres(PrivateServer):
    """PostgreSQL; stop(mode="immediate") is its crash."""

    name = "PostgreSQL"
    stop_signals: ClassVar = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}
    places = ("usr/lib/postgresql/*/bin", "usr/local/pgsql/bin", "opt/homebrew/opt/postgresql*/bin")

    @property
    def url(self) -> str:
        return f"postgres://postgres@127.0.0.1:{self.port}/postgres"

    def answer(self, url: str) -> None:
        postgres_answers(url)

    def launch(self) -> subprocess.Popen[bytes]:
        data = self.directory / "data"
        if not data.exists():
            self.initialise(data)
        command = [binary("postgres", *self.places), "-D", str(data), "-p", str(self.port)]
        # No fsync: it protects from the death of the machine, not from that of the server.
        for option in (
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "fsync=off",
            "max_connections=200",
        ):
            command += ["-c", option]
        return self.popen(command, **self.identity())

    def initialise(self, data: Path) -> None:
        initdb = binary("initdb", *self.places)
        identity = self.identity()
        if identity:
            os.chown(self.directory, identity["user"], identity["group"])
        settings = ["--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"]
        command = [initdb, "-D", str(data), "-U", "postgres", *settings]
        with (self.directory / "server.log").open("ab") as log:
            subprocess.run(
                command, cwd=self.directory, stdout=log, stderr=log, check=True, **identity
            )

    @staticmethod
    def identity() -> dict[str, int | list[int]]:
        """Return who the server runs as: PostgreSQL refuses to run as root."""
        if os.geteuid() != 0:
            return {}
        known = {entry.pw_name: entry for entry in pwd.getpwall()}
        account = known.get("postgres") or known["nobody"]
        return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


class PrivateRabbitmq(PrivateServer):
    """RabbitMQ: a node with a name, a cookie and an epmd of its own."""

    name = "RabbitMQ"
    stop_signals: ClassVar = {"fast": signal.SIGTERM}
    # The program on PATH is a wrapper that changes the user and drops the environment.
    places = ("usr/lib/rabbitmq/bin", "opt/homebrew/opt/rabbitmq/sbin")
    erlang = ("usr/lib/erlang/erts-*/bin", "usr/lib/erlang/bin")

    def __init__(self, epmd_port: int | None = None) -> None:
        super().__init__()
        self.node = f"eventbus-{self.port}@localhost"
        self.distribution_port = free_port()
        self.epmd_port = epmd_port or free_port()
        self.plugins: list[str] = []
        #: More lines of rabbitmq.conf, read at each start.
        self.configuration: list[str] = []

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    def answer(self, url: str) -> None:
        rabbitmq_answers(url)

    def launch(self) -> subprocess.Popen[bytes]:
        server = rabbitmq_command("rabbitmq-server", *self.places)
        (self.directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\n"
            "disk_free_limit.absolute = 50MB\n"
            "log.console = true\n" + "".join(f"{line}\n" for line in self.configuration)
        )
        (self.directory / "enabled_plugins").write_text(f"[{','.join(self.plugins)}].\n")
        self.write_cookie()
        return self.popen(server, env=self.environment())

    @property
    def cookie(self) -> str:
        # The same for all nodes of an epmd: they know each other by it.
        return f"eventbus{self.epmd_port}"

    def write_cookie(self) -> None:
        file = self.directory / ".erlang.cookie"
        if not file.exists():
            file.write_text(self.cookie)
            file.chmod(0o400)

    def control(self, *arguments: str) -> str:
        """Run rabbitmqctl on this node and return what it says."""
        program = rabbitmq_command("rabbitmqctl", *self.places)
        command = [*program, "--node", self.node, *arguments]
        environment = self.environment()
        return subprocess.check_output(command, env=environment, text=True, timeout=60)

    def evaluate(self, expression: str) -> str:
        """Evaluate Erlang on this node, in milliseconds: rabbitmqctl takes seconds of CPU."""
        caller = [*rabbitmq_command("erl_call", *self.erlang), "-sname", self.node]
        answer = subprocess.check_output(
            [*caller, "-c", self.cookie, "-e"],
            env=self.environment(),
            input=f"{expression}.\n",
            text=True,
            timeout=60,
        )
        assert answer.startswith("{ok, "), answer
        return answer.removeprefix("{ok, ").removesuffix("}")

    def environment(self) -> dict[str, str]:
        directory = str(self.directory)
        inherited = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return {
            **inherited,
            "HOME": directory,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self.epmd_port),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": f"{directory}/rabbitmq",
            "RABBITMQ_DIST_PORT": str(self.distribution_port),
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{directory}/enabled_plugins",
            "RABBITMQ_LOG_BASE": directory,
            "RABBITMQ_MNESIA_BASE": f"{directory}/data",
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_NODE_PORT": str(self.port),
            # One scheduler that sleeps when idle: several nodes share the cores with the tests.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none",
        }

    def remove(self) -> None:
        """Kill it, end its epmd and delete its directory."""
        super().remove()
        with suppress(Unavailable):
            command = [*rabbitmq_command("epmd", *self.erlang), "-kill"]
            subprocess.run(command, env=self.environment(), capture_output=True, check=False)


class PrivateCluster:
    """Three RabbitMQ nodes; each can be killed and started by itself."""

    def __init__(self) -> None:
        epmd_port = free_port()
        self.nodes = [PrivateRabbitmq(epmd_port) for _ in range(3)]
        peers = [
            f"cluster_formation.classic_config.nodes.{number} = {node.node}"
            for number, node in enumerate(self.nodes, 1)
        ]
        for node in self.nodes:
            node.configuration = [
                "cluster_formation.peer_discovery_backend = classic_config",
                *peers,
            ]

    @property
    def url(self) -> str:
        """All three hosts in one URL."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"amqp://guest:guest@{hosts}/%2F"

    def start(self, *nodes: PrivateRabbitmq) -> None:
        """Start all of them, or *nodes*, at the same time."""
        for node in nodes or self.nodes:
            node.process = node.launch()
        for node in nodes or self.nodes:
            eventually(node.is_up, timeout=node.start_timeout, message=lambda: node.log)  # noqa: B023

    def remove(self) -> None:
        for node in self.nodes:
            node.remove()
