"""A project written from the README alone: its own blocks, its own commands, and their effect."""

from __future__ import annotations

import re
import shlex
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.test_docs import README, Terminals, blocks, is_file, write
from tests.support.helpers import eventually, plugin_arguments
from tests.support.private_servers import free_port

BILLED = "from orders.models import Order; print([each.is_billed for each in Order.objects.all()])"


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Terminals]:
    terminals = Terminals(tmp_path / "project")
    terminals.directory.mkdir()
    yield terminals
    terminals.close()


def commands(block: str) -> dict[str, str]:
    """Return the command lines of a block without their comments, by what each runs."""
    lines = [shlex.join(shlex.split(line, comments=True)) for line in block.splitlines()]
    return {re.sub(r"python (-m |manage.py )", "", line).split()[0]: line for line in lines}


def test_a_project_is_written_from_the_readme_alone(newcomer: Terminals):
    start, finish = map(commands, blocks(README, "sh"))
    assert list(start) == ["pip", "django", "startapp"]

    for name, line in start.items():
        if name != "pip":
            newcomer.run(line)
    for block in blocks(README, "python"):
        assert is_file(block)
        write(newcomer.directory, block)

    newcomer.run(finish["makemigrations"])
    options = shlex.join(["-W", "error", *plugin_arguments()])
    assert "1 passed" in newcomer.run(f"{finish['pytest']} {options}")
    newcomer.run(finish["migrate"])
    post_an_order(newcomer, finish["runserver"])
    assert newcomer.run(shell(BILLED)) == "[False]"
    newcomer.run(f"{finish['consume_events']} --burst")
    assert newcomer.run(shell(BILLED)) == "[True]"


def shell(code: str) -> str:
    return f"python manage.py shell -v 0 -c {shlex.quote(code)}"


def post_an_order(newcomer: Terminals, runserver: str) -> None:
    """Do what curl does in the comment beside the command, on a port that is free."""
    port = free_port()
    data, path = re.search(r"curl -d (\S+) http://127.0.0.1:8000(\S+)", README.read_text()).groups()
    newcomer.start(f"{runserver} --noreload 127.0.0.1:{port}")

    def answer() -> str:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{port}{path}", data.encode()
            ) as response:
                return response.read().decode()
        except OSError:
            return ""

    told = eventually(answer, timeout=30, message=lambda: newcomer.log.read_text())
    assert told == "Order 1 is placed.\n"
    newcomer.close()
