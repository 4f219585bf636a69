"""The base of the worker commands: check the configuration, run a crew, stop, exit."""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from django.core.checks import ERROR, CheckMessage
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from django_eventbus import checks, transports
from django_eventbus.conf import conf
from django_eventbus.exceptions import DatabaseUnavailable, EventBusError
from django_eventbus.models import OutboxEvent, Worker
from django_eventbus.monitoring.background_tasks import background_tasks
from django_eventbus.monitoring.heartbeat import Heartbeat
from django_eventbus.outages import OutageWatch, proven
from django_eventbus.transports.contract import Transport
from django_eventbus.workers.crew import Crew, declare
from django_eventbus.workers.silent_databases import set_keepalives


class WorkerCommand(BaseCommand, ABC):
    """A command that runs until SIGTERM or SIGINT, which end it with exit code 0."""

    #: Checked in handle(), so that an invalid configuration is reported as one sentence.
    requires_system_checks = []

    crew: Crew
    transport: Transport

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--fail-fast",
            action="store_true",
            help="Exit with 1 if the database or the broker does not answer at the start.",
        )
        parser.add_argument(
            "--metrics-port",
            type=port,
            metavar="PORT",
            help="Serve metrics for Prometheus on this port.",
        )
        parser.add_argument(
            "--metrics-address",
            default="127.0.0.1",
            metavar="ADDRESS",
            help="The address to serve metrics on; 0.0.0.0 means all interfaces.",
        )

    @abstractmethod
    def worker(self, **options: Any) -> Worker:
        """Return the row of this process."""

    @abstractmethod
    def wire(self, **options: Any) -> str:
        """Add loops to the crew; return a sentence that describes them."""

    def unwire(self) -> None:
        """Close the loops that wire() added. Does nothing by default."""

    def execute(self, *args: Any, **options: Any) -> Any:
        # Around everything: until then, a signal ends the process with an exit code that is not 0.
        self.crew = Crew()
        with self.crew.stopping_on_signals():
            return super().execute(*args, **options)

    def handle(self, *args: Any, **options: Any) -> None:
        for warning in require_valid_configuration():
            self.stderr.write(warning)
        set_keepalives()
        self.transport = transports.connect(conf.broker_url)
        try:
            with self._metrics(**options):
                self.work(**options)
        except EventBusError as error:
            raise CommandError(str(error)) from error

    @contextmanager
    def _metrics(self, **options: Any) -> Iterator[None]:
        """Serve metrics until the block ends, if --metrics-port is given."""
        with ExitStack() as stack:
            if options["metrics_port"] is not None:
                address = options["metrics_address"], options["metrics_port"]
                url = served_metrics(stack, *address)
                self.stdout.write(f"Metrics are at {url}.")
            yield

    def work(self, **options: Any) -> None:
        """Wait for the database and the broker, then run the crew to its end."""
        database = options.get("database") or "default"
        if options["fail_fast"]:
            require_tables(database)
            require_broker(self.transport)
        watch = OutageWatch(type(self), "command")
        watch.succeed(lambda: require_tables(database), self.crew.stop)
        worker = self.worker(**options)
        with self._watched(worker):
            declare(self.transport, self.crew.stop)
            if not self.crew.stop.is_set():
                self._run(**options)

    def _run(self, **options: Any) -> None:
        self.stdout.write(f"{self.wire(**options)} Press Ctrl-C to stop.")
        try:
            self.crew.run()
        finally:
            self.unwire()

    @contextmanager
    def _watched(self, worker: Worker) -> Iterator[None]:
        """Run the heartbeat and the other background tasks until the block ends."""
        with ExitStack() as stack:
            stack.enter_context(Heartbeat(worker, self.crew.stop.is_set).beating())
            for task in background_tasks(self.transport, worker, self.crew.stop):
                stack.enter_context(task.running())
            yield


@contextmanager
def connected() -> Iterator[Transport]:
    """Yield the transport; turn errors inside the block into CommandError."""
    require_valid_configuration()
    try:
        yield transports.connect(conf.broker_url)
    except EventBusError as error:
        raise CommandError(str(error)) from error


def require_valid_configuration() -> list[str]:
    """Raise CommandError with the first problem as one sentence; return the warnings."""
    problems = checks.problems()
    for problem in problems:
        if problem.level >= ERROR:
            raise CommandError(_sentence(problem))
    return [_sentence(problem) for problem in problems]


def _sentence(problem: CheckMessage) -> str:
    return f"{problem.id}: {problem.msg} {problem.hint or ''}".strip()


def require_tables(database: str) -> None:
    if database not in connections:
        raise CommandError(f"There is no database {database!r} in DATABASES.")
    try:
        with proven(database):
            tables = connections[database].introspection.table_names()
    except DatabaseUnavailable as error:
        # Waiting cannot solve these.
        if any(words in str(error) for words in ("does not exist", "authentication failed")):
            raise CommandError(str(error)) from error
        raise
    if OutboxEvent._meta.db_table not in tables:
        raise CommandError("The tables of django_eventbus are missing: run `manage.py migrate`.")


def require_broker(transport: Transport) -> None:
    """Raise BrokerUnavailable if the broker does not answer."""
    publisher = transport.publisher()
    try:
        publisher.open()
    finally:
        publisher.close()


def served_metrics(stack: ExitStack, address: str, number: int) -> str:
    """Serve metrics until *stack* is closed; return their URL."""
    try:
        # Not at the top: it imports prometheus_client, which most projects do not install.
        from django_eventbus.contrib.prometheus import serving

        return stack.enter_context(serving(number, address))
    except ImportError as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        words = error.strerror or str(error)
        raise CommandError(f"Metrics cannot be served at {address}:{number}: {words}.") from error


def port(text: str) -> int:
    """Accept the number of a port; 0 means any free port."""
    if not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)


def positive(text: str) -> int:
    """Accept a whole number of 1 or more."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)
