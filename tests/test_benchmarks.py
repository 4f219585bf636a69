"""The benchmark at short length: it runs, and it checks what it measures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import report
from tests import services
from tests.skipping import skipped_if_missing

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
