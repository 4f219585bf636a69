"""Run the tests that need a broker on each supported RabbitMQ, and print a table.

Arguments that are versions choose among them; all others go to pytest.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterable, Iterator

import pytest

from tests.support import services
from tests.support.databases import run_directory
from tests.support.private_servers import RABBITMQ_VERSION
from tests.support.probes import rabbitmq_answers
from tests.support.suite import (
    Pass,
    drop_databases,
    print_heading,
    provide_celery_beat,
    run_pytest,
)
from tools import brokers

#: The oldest that is supported, and those that `make brokers` fetches.
VERSIONS = ("3.10", *brokers.SUITES)


def main(arguments: list[str]) -> int:
    """Run the versions one after the other; return 1 unless all tests ran on each and passed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    versions = [each for each in arguments if re.fullmatch(r"\d+\.\d+", each)]
    others = [each for each in arguments if each not in versions]
    run_directory()
    if all(each.startswith("-") for each in others):
        provide_celery_beat()
    postgres = services.find(services.POSTGRES)
    results = {
        version: run_version(version, others, postgres.url) for version in versions or VERSIONS
    }
    print()
    for line in table(results):
        print(line)
    return 0 if all(is_fine(each) for each in results.values()) else 1


def run_version(version: str, arguments: list[str], postgres: str | None) -> Pass | str:
    """Run the tests on one version and return the result, or why they were not run."""
    os.environ[RABBITMQ_VERSION] = version
    os.environ.pop(services.RABBITMQ.variable, None)
    try:
        with services.private_rabbitmq() as server:
            # All workers of pytest share this node.
            os.environ[services.RABBITMQ.variable] = server.url
            print_heading(f"RabbitMQ {rabbitmq_answers(server.url)}")
            return run_marked(arguments, postgres)
    except services.ServiceMissing as missing:
        return missing.reason


def run_marked(arguments: list[str], postgres: str | None) -> Pass:
    if postgres is None:
        return run_pytest("sqlite", ["-m", "rabbitmq", *arguments], False)
    try:
        return run_pytest("postgres", ["-m", "rabbitmq", *arguments], False)
    finally:
        drop_databases(postgres)


def table(results: dict[str, Pass | str]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield row("RabbitMQ", ("passed", "failed", "skipped"))
    for version, result in results.items():
        if isinstance(result, str):
            yield f"{version:<10}NOT RUN: {result}"
        else:
            yield row(version, (result.passed, result.failed, result.skipped))


def row(first: str, others: Iterable[object]) -> str:
    return "".join([f"{first:<10}", *(f"{each:>9}" for each in others)])


def is_fine(result: Pass | str) -> bool:
    return isinstance(result, Pass) and result.code == pytest.ExitCode.OK and not result.missing


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
