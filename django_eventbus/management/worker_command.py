"""What the worker commands share: refuse a broken configuration, run a crew, stop, exit."""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from typing import Any

from django.core.checks import ERROR, CheckMessage
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from django_eventbus import checks, errands, measuring, readings, transports
from django_eventbus.conf import conf
from django_eventbus.exceptions import DatabaseUnavailable, EventBusError
from django_eventbus.heartbeat import Heartbeat
from django_eventbus.measuring import Gauge
from django_eventbus.models import OutboxEvent, Worker
from django_eventbus.observability.statsd import StatsdSink
from django_eventbus.outages import OutageWatch, proven
from django_eventbus.readings import Reporter
from django_eventbus.sidelines import Sideline
from django_eventbus.transports.contract import Transport
from django_eventbus.workers import Crew, declare, queue_specs


class WorkerCommand(BaseCommand, ABC):
    """A command that runs until SIGTERM or SIGINT, which end it with exit code 0."""

    #: Checked in handle(), so that a broken configuration is one sentence.
    requires_system_checks = []

    crew: Crew
    transport: Transport

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--fail-fast",
            action="store_true",
            help="Do not wait at the start for a database or a broker that is away; exit with 1.",
        )
        parser.add_argument(
            "--metrics-port", type=port, metavar="PORT", help="Serve metrics to Prometheus here."
        )
        parser.add_argument(
            "--metrics-address",
            default="127.0.0.1",
            metavar="ADDRESS",
            help="Where to listen for it; 0.0.0.0 is everywhere.",
        )

    @abstractmethod
    def worker(self, **options: Any) -> Worker:
        """Return the row of this process."""

    @abstractmethod
    def wire(self, **options: Any) -> str:
        """Add loops to the crew; return a sentence on what it is about to do."""

    def unwire(self) -> None:
        """Close what wire() opened; nothing unless a command says so."""

    def handle(self, *args: Any, **options: Any) -> None:
        for warning in refuse_broken_configuration():
            self.stderr.write(warning)
        self.crew = Crew()
        self.transport = transports.connect(conf.broker_url)
        try:
            with self.crew.stopping_on_signals(), self._metrics(**options):
                self.work(**options)
        except EventBusError as error:
            raise CommandError(str(error)) from error

    @contextmanager
    def _metrics(self, **options: Any) -> Iterator[None]:
        """Serve metrics meanwhile, if that is asked for."""
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
            refuse_missing_tables(database)
            refuse_unreachable(self.transport)
        OutageWatch(type(self)).succeed(lambda: refuse_missing_tables(database), self.crew.stop)
        worker = self.worker(**options)
        with self._watched(worker):
            declare(self.transport, self.crew.stop)
            if not self.crew.stop.is_set():
                self._run(**options)

    def _run(self, **options: Any) -> None:
        self.stdout.write(f"{self.wire(**options)} Ctrl-C stops.")
        try:
            self.crew.run()
        finally:
            self.unwire()

    @contextmanager
    def _watched(self, worker: Worker) -> Iterator[None]:
        """Have a heartbeat, and the queues looked at, meanwhile."""
        gauge = Gauge(self.transport, queue_specs, worker)
        with (
            Heartbeat(worker, self.crew.stop.is_set).beating(),
            Sideline("look at the queues", gauge.look, every=measuring.LOOK_EVERY).running(),
            self._errands(worker),
            reported(worker),
        ):
            yield

    def _errands(self, worker: Worker) -> AbstractContextManager[None]:
        """Do errands meanwhile, where there is a broker to do them on."""
        if not any(map(self.transport.dead_letter_queue, worker.queues)):
            return nullcontext()
        runner = errands.ErrandRunner(self.transport, worker, self.crew.stop)
        return Sideline("errands", runner.look, every=errands.LOOK_EVERY).running()


@contextmanager
def connected() -> Iterator[Transport]:
    """Yield the transport; end the command with one sentence if it, or what uses it, fails."""
    refuse_broken_configuration()
    try:
        yield transports.connect(conf.broker_url)
    except EventBusError as error:
        raise CommandError(str(error)) from error


def refuse_broken_configuration() -> list[str]:
    """Raise CommandError with the first problem as one sentence; return the warnings."""
    problems = checks.problems()
    for problem in problems:
        if problem.level >= ERROR:
            raise CommandError(_sentence(problem))
    return [_sentence(problem) for problem in problems]


def _sentence(problem: CheckMessage) -> str:
    return f"{problem.id}: {problem.msg} {problem.hint or ''}".strip()


def refuse_missing_tables(database: str) -> None:
    if database not in connections:
        raise CommandError(f"There is no database {database!r} in DATABASES.")
    try:
        with proven(database):
            tables = connections[database].introspection.table_names()
    except DatabaseUnavailable as error:
        # Waiting helps against neither.
        if any(words in str(error) for words in ("does not exist", "authentication failed")):
            raise CommandError(str(error)) from error
        raise
    if OutboxEvent._meta.db_table not in tables:
        raise CommandError("The tables of django_eventbus are missing: run `manage.py migrate`.")


def refuse_unreachable(transport: Transport) -> None:
    """Raise BrokerUnavailable if there is no connection to be had."""
    publisher = transport.publisher()
    try:
        publisher.open()
    finally:
        publisher.close()


@contextmanager
def reported(worker: Worker) -> Iterator[None]:
    """Tell STATSD meanwhile what the tables say, if it is set."""
    if conf.statsd is None:
        yield
        return
    with closing(StatsdSink(conf.statsd)) as sink:
        reporter = Reporter(sink, worker)
        with Sideline("report to StatsD", reporter.look, every=readings.REPORT_EVERY).running():
            yield


def served_metrics(stack: ExitStack, address: str, number: int) -> str:
    """Serve metrics until *stack* is closed; return their URL."""
    try:
        # Not at the top: most projects go without what it imports.
        from django_eventbus.contrib.prometheus import serving

        return stack.enter_context(serving(number, address))
    except ImportError as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        words = error.strerror or str(error)
        raise CommandError(f"No metrics can be served at {address}:{number}: {words}.") from error


def port(text: str) -> int:
    """Accept the number of a port; 0 is any that is free."""
    if not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)


def positive(text: str) -> int:
    """Accept a whole number from 1 on."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)
