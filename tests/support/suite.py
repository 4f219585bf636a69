"""Run the suite on PostgreSQL, then on SQLite what depends on the database.

Arguments go to pytest; `--coverage` before them measures both passes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from tests.support import services
from tests.support.databases import run_directory, run_name
from tools.environment import provide

ROOT = Path(__file__).parent.parent.parent
NOWHERE = "postgres://postgres@127.0.0.1:1/postgres"
SHARED = (services.POSTGRES,)
#: Run only what depends on the database.
SECOND = {"EVENTBUS_TEST_SECOND_PASS": "1"}
FINE = {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}


@dataclass(frozen=True)
class Pass:
    """What one run of pytest came to."""

    code: int
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    collected: int = 0
    missing: list[str] = field(default_factory=list)


def main(arguments: list[str]) -> int:
    """Run both passes and return the exit code of the suite."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    is_measured = arguments[:1] == ["--coverage"]
    arguments = arguments[1:] if is_measured else arguments
    try:
        postgres, *_ = [services.find(kind) for kind in SHARED]
    except services.ServiceMissing as error:
        print(error, file=sys.stderr)
        return 1
    if is_measured:
        coverage("erase")
    if all(each.startswith("-") for each in arguments):
        provide_celery_beat()
    passes = run_passes(arguments, postgres, is_measured)
    missing = missing_tests(passes, postgres)
    is_covered = report_coverage(not arguments and not missing) if is_measured else True
    print_missing(missing)
    print_totals(passes)
    return exit_code(passes) or (0 if is_covered else 1)


def provide_celery_beat() -> None:
    """Make the environment of one test before any test runs; without it, that one is not run."""
    made, wanted = services.BEAT / ".made", ROOT / "pyproject.toml"
    if made.exists() and made.stat().st_mtime >= wanted.stat().st_mtime:
        return
    try:
        provide(services.BEAT, "beat")
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"There is no django-celery-beat: {error}", file=sys.stderr)
    else:
        made.touch()


def run_passes(arguments: list[str], postgres: services.Service, is_measured: bool) -> list[Pass]:
    run_directory()
    if postgres.url is None:
        print_heading("SQLite")
        return [run_pytest("sqlite", arguments, is_measured), count_tests(arguments)]
    print_heading(f"PostgreSQL ({postgres.origin})")
    try:
        first = run_pytest("postgres", arguments, is_measured)
    finally:
        drop_databases(postgres.url)
    print_heading("SQLite")
    return [first, run_pytest("sqlite", arguments, is_measured, **SECOND)]


def run_pytest(database: str, arguments: list[str], is_measured: bool, **variables: str) -> Pass:
    report = run_directory() / f"{database}.json"
    report.unlink(missing_ok=True)
    # Two more than there are cores: many tests wait for processes, leases and tiers.
    workers = min(4, os.cpu_count() or 2) + 2
    measured = ["coverage", "run", "-m"] if is_measured else []
    command = [sys.executable, "-m", *measured, "pytest", "-n", str(workers)]
    environment = {
        **with_bytecode(os.environ),
        **variables,
        "EVENTBUS_TEST_DATABASE": database,
        "EVENTBUS_TEST_REPORT": str(report),
    }
    ended = subprocess.run(
        [*command, "--dist", "loadgroup", *arguments], cwd=ROOT, env=environment, check=False
    )
    return result(ended.returncode, report)


def with_bytecode(environment: Mapping[str, str]) -> dict[str, str]:
    """Let Python keep what it compiles: else each of many hundred processes does it anew."""
    return {name: value for name, value in environment.items() if name != "PYTHONDONTWRITEBYTECODE"}


def count_tests(arguments: list[str]) -> Pass:
    """Count what only a pass on PostgreSQL could show, without a server to run it on."""
    report = run_directory() / "count.json"
    environment = {
        **os.environ,
        **SECOND,
        "EVENTBUS_TEST_DATABASE": "postgres",
        services.POSTGRES.variable: NOWHERE,
        "EVENTBUS_TEST_REPORT": str(report),
    }
    command = [sys.executable, "-m", "pytest", *arguments, "-n0", "--collect-only", "-q"]
    ended = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True)
    return result(ended.returncode, report)


def result(code: int, report: Path) -> Pass:
    counts = json.loads(report.read_text()) if report.exists() else {}
    return Pass(code, **counts)


def missing_tests(passes: list[Pass], postgres: services.Service) -> Counter[str]:
    """Return how many tests were not run, by what they were missing."""
    missing = Counter(reason for each in passes for reason in each.missing)
    if postgres.url is None:
        missing[f"{postgres.name}: {postgres.origin}"] += passes[-1].collected
    return +missing


def exit_code(passes: list[Pass]) -> int:
    """Return 0 if nothing failed and at least one pass ran something."""
    for each in passes:
        if each.code not in FINE:
            return each.code
    return min(each.code for each in passes)


def drop_databases(url: str) -> None:
    """Drop what a killed pytest has left on the server."""
    with psycopg.connect(url, autocommit=True) as session:
        query = "SELECT quote_ident(datname) FROM pg_database WHERE starts_with(datname, %s)"
        for (name,) in session.execute(query, [f"test_eventbus_{run_name()}"]).fetchall():
            session.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def report_coverage(is_complete: bool) -> bool:
    """Print what the tests did not reach; tell whether a complete run reached enough."""
    print_heading("Coverage")
    coverage("combine", "--quiet")
    limit = [] if is_complete else ["--fail-under=0"]
    ended = coverage("report", *limit)
    return ended.returncode == 0 or not is_complete


def coverage(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "coverage", *arguments], cwd=ROOT, check=False)


def print_heading(title: str) -> None:
    print(f"\n### {title}", flush=True)


def print_missing(missing: Counter[str]) -> None:
    if missing:
        print(f"\n{'!' * 79}")
        print(f"!!! NOT RUN: {missing.total()} tests")
        for reason, number in missing.items():
            print(f"!!! {number} for want of {reason}")
        print("!" * 79)


def print_totals(passes: list[Pass]) -> None:
    passed, failed, skipped = (
        sum(getattr(each, name) for each in passes) for name in ("passed", "failed", "skipped")
    )
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
