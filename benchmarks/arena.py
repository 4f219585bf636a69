"""The servers, the environments and the processes of the benchmark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pika
import psycopg

from benchmarks import report
from tests.support.helpers import eventually
from tests.support.private_servers import PrivateRabbitmq, free_port
from tests.support.services import postgres_url

ROOT = Path(__file__).parent.parent
PEERS = ROOT / ".bench"
QUEUE = "bench.ledger"
#: Slow contestants get fewer messages, so that a round stays short.
SHARE = {report.CONSUMER: 8, report.OUTBOX_PATTERN: 8}
CELERY_SHARE = 20


class StompRabbitmq(PrivateRabbitmq):
    """A private broker that also supports STOMP."""

    def __init__(self) -> None:
        super().__init__()
        self.stomp_port = free_port()
        self.plugins = ["rabbitmq_stomp"]
        self.configuration = [f"stomp.listeners.tcp.1 = 127.0.0.1:{self.stomp_port}"]


class Arena:
    """A private broker and database, on which one contestant at a time runs."""

    def __init__(self, *, with_peers: bool) -> None:
        self.with_peers = with_peers
        self.stack = ExitStack()

    def __enter__(self) -> Arena:
        self.broker = StompRabbitmq() if self.with_peers else PrivateRabbitmq()
        self.stack.callback(self.broker.remove)
        self.broker.start()
        self.database = self.stack.enter_context(fresh_database(postgres_url()))
        self.session = self.stack.enter_context(psycopg.connect(self.database, autocommit=True))
        self.python = provide_peers() if self.with_peers else ""
        self.run(sys.executable, "-m", "django", "migrate", "--run-syncdb", "--verbosity", "0")
        return self

    def __exit__(self, *error: object) -> None:
        self.stack.close()

    def round(self, messages: int) -> Iterator[tuple[str, float]]:
        """Run each contestant once; yield its messages per second."""
        yield report.RAW, self.stage("raw", messages)
        yield report.RELAY, self.stage("relay", messages)
        yield report.CONSUMER, self.consumer(messages // SHARE[report.CONSUMER])
        if self.with_peers:
            fewer = messages // SHARE[report.OUTBOX_PATTERN]
            yield report.OUTBOX_PATTERN, self.outbox_pattern(fewer)
            for name, pool in ((report.CELERY_SOLO, "solo"), (report.CELERY_THREADS, "threads")):
                yield name, self.celery(messages // CELERY_SHARE, pool)

    def stage(self, name: str, messages: int) -> float:
        self.purge(QUEUE)
        figures = self.measured(sys.executable, "-m", "benchmarks.stages", name, str(messages))
        eventually(lambda: self.depth(QUEUE) == messages, message="Not every message is there.")
        return figures

    def outbox_pattern(self, messages: int) -> float:
        self.purge(QUEUE)
        rate = self.measured(self.python, "-m", "benchmarks.peers.outbox_pattern", str(messages))
        eventually(lambda: self.depth(QUEUE) == messages, message="Not every message is there.")
        return rate

    def consumer(self, messages: int) -> float:
        self.session.execute("TRUNCATE ledger_entry, eventbus_inboxrecord CASCADE")
        self.stage("relay", messages)
        command = [sys.executable, "-m", "django", "consume_events", "--concurrency", "4"]
        rate = self.watched(command, messages)
        handled = "SELECT count(*) FROM eventbus_inboxrecord WHERE state = 'handled'"
        assert self.session.execute(handled).fetchone() == (messages,)
        assert self.depth(QUEUE) == 0
        return rate

    def celery(self, messages: int, pool: str) -> float:
        self.session.execute("TRUNCATE ledger_entry, ledger_seen")
        self.run(self.python, "-m", "benchmarks.peers.celery_app", str(messages))
        command = [self.python, "-m", "celery", "-A", "benchmarks.peers.celery_app:app", "worker"]
        options = ["--pool", pool, "--concurrency", "4", "--loglevel", "ERROR"]
        return self.watched([*command, *options, "--without-mingle", "--without-gossip"], messages)

    def watched(self, command: list[str], messages: int) -> float:
        """Run a worker until every message has its entry; return its rate by the server's clock."""
        worker = subprocess.Popen(
            command, cwd=ROOT, env=self.environment, stdout=subprocess.DEVNULL
        )
        try:
            # Poll rarely, so that the query does not slow down the worker.
            eventually(lambda: self.entries() >= messages, timeout=300, interval=0.5)
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(60)
        question = "SELECT count(DISTINCT event_id), extract(epoch FROM max(at) - min(at)) FROM ledger_entry"
        distinct, seconds = self.session.execute(question).fetchone() or (0, 0)
        assert distinct == self.entries() == messages, "Not every message was handled once."
        return (messages - 1) / float(seconds)

    def entries(self) -> int:
        row = self.session.execute("SELECT count(*) FROM ledger_entry").fetchone()
        return int(row[0]) if row else 0

    def measured(self, *command: str) -> float:
        figures = json.loads(self.run(*command).splitlines()[-1])
        return float(figures["messages"] / figures["seconds"])

    def run(self, *command: str) -> str:
        return subprocess.run(
            command, cwd=ROOT, env=self.environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "benchmarks.settings",
            "BENCHMARK_DATABASE_URL": self.database,
            "BENCHMARK_BROKER_URL": self.broker.url,
            "BENCHMARK_STOMP_PORT": str(getattr(self.broker, "stomp_port", 0)),
        }

    @contextmanager
    def channel(self) -> Iterator[Any]:
        with pika.BlockingConnection(pika.URLParameters(self.broker.url)) as connection:
            yield connection.channel()

    def purge(self, queue: str) -> None:
        with self.channel() as channel:
            try:
                channel.queue_purge(queue)
            except pika.exceptions.ChannelClosedByBroker as error:
                # Before the first round, the queue does not exist.
                if error.reply_code != 404:
                    raise

    def depth(self, queue: str) -> int:
        with self.channel() as channel:
            return int(channel.queue_declare(queue, passive=True).method.message_count)


@contextmanager
def fresh_database(server: str) -> Iterator[str]:
    """Create a database for this run and drop it afterwards."""
    name = f"eventbus_bench_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(server, autocommit=True) as session:
        session.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield f"{server.rpartition('/')[0]}/{name}"
        finally:
            session.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def provide_peers() -> str:
    """Create the environment of the peers with pinned versions, and return its Python."""
    subprocess.run(
        [sys.executable, "tools/environment.py", str(PEERS), "peers"],
        cwd=ROOT,
        check=True,
        stdout=sys.stderr,
    )
    return str(PEERS / "bin" / "python")
