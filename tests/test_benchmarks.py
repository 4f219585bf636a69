"""The benchmark at short length: it runs, and it checks what it measures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import report
from tests.support import services
from tests.support.skipping import skipped_if_missing

ROOT = Path(__file__).parent.parent


@pytest.mark.postgres
@pytest.mark.rabbitmq
def test_our_own_contestants_carry_and_handle_every_message_once():
    with skipped_if_missing():
        services.postgres_url()
    command = [sys.executable, "-m", "benchmarks", "--rounds", "1", "--messages", "400"]

    ended = subprocess.run(
        [*command, "--without-peers", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    figures = json.loads(ended.stdout)
    assert set(figures["rates"]) == {report.RAW, report.RELAY, report.CONSUMER}
    assert [each["ours"] for each in figures["ratios"]] == [report.RELAY]


def test_a_ratio_is_of_medians_and_with_the_best_of_theirs():
    figures = report.Figures()
    for ours, solo, threads in ((100, 10, 40), (300, 10, 60), (200, 10, 50)):
        figures.add(report.CONSUMER, ours)
        figures.add(report.CELERY_SOLO, solo)
        figures.add(report.CELERY_THREADS, threads)

    assert figures.ratios() == [(report.CONSUMER, report.CELERY_THREADS, 4.0, 2)]
    assert figures.are_as_asked


def test_a_ratio_below_what_is_asked_is_told(capsys):
    figures = report.Figures()
    figures.add(report.RELAY, 50)
    figures.add(report.RAW, 100)

    report.print_table(figures)

    assert "= 0.50 x" in capsys.readouterr().out
    assert not figures.are_as_asked


@pytest.mark.postgres
@pytest.mark.rabbitmq
def test_questions_about_many_dead_letters_are_answered_within_a_second_and_a_plan_keeps_its_rate():
    with skipped_if_missing():
        services.postgres_url()
    sizes = ["--letters", "5000", "--groups", "100", "--plan", "500", "--rate", "100", "--json"]

    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.dead_letters", *sizes],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout.splitlines()[-1])
    ours = {name: each for name, each in told["questions"].items() if "Django" not in name}
    assert [name for name, each in ours.items() if each["seconds"] > 1] == []
    assert ours["list: words of one error"]["answer"] == "(1, 1)"
    assert ours["list: a value of the payload"]["answer"] == "(1, 1)"
    assert ours["dry run of all"]["answer"] == "5000"
    assert ours["groups with trend, sample and flags"]["answer"] == "(50, 100, 0)"
    assert told["plan"]["healed"] == 500
    # A worker that comes late may send two seconds' worth at once.
    assert told["plan"]["seconds"] >= (500 - 5) / 100 - 2 - 0.5
    assert told["megabytes"] < 200
