"""The example project and its demo, run as a reader runs them."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pika
import pytest

from tests.support.tables import table

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "example_project"

STORY = (
    r"order.placed 1 +billing +handled +on attempt 1",
    r"order.placed 2 +billing +retrying +attempt 1 failed, again in 1s: CardTimeout",
    r"order.placed 2 +billing +retrying +attempt 2 failed, again in 2s: CardTimeout",
    r"order.placed 2 +billing +handled +on attempt 3",
    r"order.placed 3 +billing +retrying +attempt 2 failed, again in 2s: ProviderDown",
    r"order.placed 3 +billing +parked +on attempt 3: ProviderDown",
    r"order.placed 4 +billing +given up +on attempt 1: InvalidCard",
    r"order.placed 3 +billing +re-driven +to \S+billing only, by demo, round 1",
    r"order.placed 3 +billing +healed +in round 1",
    r"parcel.pick_up 1 +shipping +handled +on attempt 1",
    r"order.shipped 1 +relay +published",
    r"opinion.wanted 1 +outbox +scheduled +for \d\d:\d\d:\d\d",
    r"opinion.wanted 1 +relay +published",
    r"opinion.wanted 1 +notifications +handled +on attempt 1",
    r"teapot  now 100 are left, then 120, then 125",
    r"stock.changed teapot +stock +retrying +attempt 1 failed, again in 1s: CountedTwice",
    r"stock.changed teapot +stock +handled +on attempt 2",
    r"stock.changed teapot +stock +handled +on attempt 1",
    r"stock.changed teapot +stock +handled +on attempt 1",
    r"2 +flaky +handled, 3 attempts +handled, 1 attempt +handled, 1 attempt",
    r"3 +lunar +healed, 4 attempts +handled, 1 attempt +handled, 1 attempt",
    r"4 +invalid +parked, 1 attempt +handled, 1 attempt +handled, 1 attempt",
    r"parcel.pick_up +shipping.pick_up +1 +1",
    r"stock.changed +stock.write_line +7 +8",
    r"order.shipped +notifications.say_shipped +1 +1",
    r"opinion.wanted +notifications.ask +1 +1",
    r"order.shipped +partner.shipped +1 +2",
    r"The ledger of teapot: 50, 49, 48, 100, 120, 125",
    r"Checked: one effect or one open dead letter per order and app, never both",
    r"Checked: the parcel was picked up, announced, forwarded and asked about once",
    r"Checked: each ledger has the changes of its item in the order",
)
#: Beside the other receivers of the same event, whose place in the story differs.
FORWARDED = (
    r"order.shipped 1 +partner +retrying +attempt 1 failed, again in 1s: ForwardFailed.*503",
    r"order.shipped 1 +partner +handled +on attempt 2",
)
QUEUES = ("billing", "ledger", "notifications", "partner", "shipping")

Demo = subprocess.Popen[str]


def test_the_demo_tells_every_stage_of_the_story_and_exits_0():
    ended = run("demo.py")

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert not ended.stderr
    assert "\033" not in ended.stdout
    assert_told_in_order(ended.stdout, STORY)
    assert_told_in_order(ended.stdout, FORWARDED)


@pytest.mark.rabbitmq
def test_the_demo_tells_the_same_story_over_rabbitmq_and_leaves_nothing_there(rabbitmq_url: str):
    ended = run("demo.py", BROKER=rabbitmq_url)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert_told_in_order(ended.stdout, STORY)
    assert_told_in_order(ended.stdout, FORWARDED)
    namespace = re.search(r"to (\w+)\.shop\.billing only", ended.stdout)[1]
    assert not [name for name in names_in(namespace) if exists(rabbitmq_url, name)]


def names_in(namespace: str) -> list[str]:
    """Return the names of all queues and exchanges that a demo has; some are of both."""
    queues = [f"{namespace}.shop.{name}" for name in QUEUES]
    parts = ("", ".dlq", ".retry", ".retry.1s", ".retry.2s")
    own = [f"{queue}{part}" for queue in queues for part in parts]
    return [*own, f"{namespace}.events", f"{namespace}.commands"]


def exists(url: str, name: str) -> bool:
    """Tell whether a queue or an exchange of that name is on the broker."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        for look in ("queue_declare", "exchange_declare"):
            with suppress(pika.exceptions.ChannelClosedByBroker):
                getattr(connection.channel(), look)(name, passive=True)
                return True
    return False


def test_the_demo_exits_1_with_a_sentence_for_a_broker_that_is_away():
    ended = run("demo.py", BROKER="amqp://user:secret@127.0.0.1:1/")

    assert ended.returncode == 1
    assert "The broker at amqp://127.0.0.1:1// does not answer." in ended.stderr
    assert "secret" not in ended.stdout + ended.stderr


def test_the_demo_exits_1_when_an_order_does_not_come_out_as_told():
    ended = run("demo.py", EVENTBUS_RETRY_DELAYS="1s")

    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "order 2 should be handled after 3 attempts, but is parked after 2" in ended.stderr


def test_the_demo_exits_1_with_a_sentence_for_a_broker_that_it_does_not_know():
    ended = run("demo.py", BROKER="pigeon://user:secret@loft")

    assert ended.returncode == 1
    assert "unknown scheme 'pigeon'" in ended.stderr
    assert "secret" not in ended.stdout + ended.stderr


def test_the_demo_exits_1_with_the_last_lines_of_a_process_that_ended(demo: Demo):
    web, consumer = started_processes(demo)

    os.kill(consumer, signal.SIGKILL)
    _, stderr = demo.communicate()

    assert demo.returncode == 1
    assert "consume_events ended with -9. Its last lines:" in stderr
    assert not is_running(web)


def test_a_demo_that_is_terminated_leaves_no_process_behind(demo: Demo):
    processes = started_processes(demo)

    demo.terminate()
    demo.communicate()

    assert demo.returncode == 128 + signal.SIGTERM
    assert not any(map(is_running, processes))


def test_two_demos_that_start_at_the_same_moment_take_different_ports(monkeypatch):
    monkeypatch.syspath_prepend(str(PROJECT))
    from demonstration.processes import reserved_port

    with reserved_port(0) as free:
        pass
    with reserved_port(free) as first, reserved_port(free) as second:
        assert first == free
        assert second != free
    with reserved_port(free) as later:
        assert later == free


def test_on_a_terminal_the_demo_stays_up_until_ctrl_c():
    terminal, end = pty.openpty()
    with started(stdout=end, stderr=end, DEMO_ONCE="", EVENTBUS_RETRY_DELAYS="200ms,300ms") as demo:
        os.close(end)
        said = read_until("Ctrl-C stops", terminal)
        pages = [fetch(address) for address in re.findall(r"The (?:admin|dashboard): +(\S+)", said)]
        demo.send_signal(signal.SIGINT)
        demo.wait(30)

    os.close(terminal)
    assert "\033[32mhandled" in said
    assert ["Log in" in page for page in pages] == [True, True]
    assert demo.returncode == 0
    assert not any(map(is_running, process_ids(said)))


@table("command", ["check --database default --fail-level WARNING", "makemigrations --check"])
def test_the_example_project_passes(command: str):
    ended = run("manage.py", *command.split())

    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_example_project_passes_its_own_tests():
    ended = run("manage.py", "test", str(PROJECT))

    assert ended.returncode == 0, ended.stderr
    assert re.search(r"Ran \d\d tests", ended.stderr)


@pytest.mark.rabbitmq
def test_the_example_project_passes_its_own_tests_on_rabbitmq(rabbitmq_url: str):
    ended = run("manage.py", "test", str(PROJECT), EVENTBUS_TEST_BROKER=rabbitmq_url)

    assert ended.returncode == 0, ended.stderr


def test_the_index_of_the_docs_names_files_of_the_example_project():
    index = (ROOT / "docs" / "index.md").read_text()
    table = index.partition("## The example project")[2].partition("## Reference")[0]
    named = re.findall(r"`(\w+/\w+\.py)`", table)

    assert len(named) > 10
    assert not [name for name in named if not (PROJECT / name).exists()]


def test_the_settings_of_the_example_project_are_at_most_60_lines():
    assert len((PROJECT / "shop" / "settings.py").read_text().splitlines()) <= 60


@pytest.fixture
def demo() -> Iterator[Demo]:
    with started(stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        yield process


@contextmanager
def started(stdout: int, stderr: int, **environment: str) -> Iterator[Demo]:
    with subprocess.Popen(
        [sys.executable, str(PROJECT / "demo.py")],
        env=demo_environment(**environment),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            # Whatever went wrong: else leaving the block would wait for a demo that stays up.
            process.terminate()


def run(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROJECT / script), *arguments],
        env=demo_environment(**environment),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def demo_environment(**environment: str) -> dict[str, str]:
    # Not measured: the shop shows the package, and other tests measure it.
    kept = {name: value for name, value in os.environ.items() if name != "COVERAGE_PROCESS_CONFIG"}
    return {
        **kept,
        "PYTHONPATH": str(ROOT),
        "DJANGO_SETTINGS_MODULE": "shop.settings",
        "DATABASE_URL": "sqlite:///:memory:",
        "DEMO_ONCE": "1",
        "BROKER": "",
        "NO_COLOR": "",
        **environment,
    }


def assert_told_in_order(said: str, story: tuple[str, ...]) -> None:
    place = 0
    for line in story:
        found = re.compile(line).search(said, place)
        assert found, f"{line!r} is not in, or not in its place in:\n{said}"
        place = found.end()


def started_processes(demo: Demo) -> list[int]:
    lines = iter(demo.stdout.readline, "")
    said = "".join(next(lines) for _ in range(3))
    return process_ids(said)


def process_ids(said: str) -> list[int]:
    return [int(number) for number in re.findall(r"\(process (\d+)\)", said)]


def is_running(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def fetch(address: str) -> str:
    browser = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with browser.open(address, timeout=30) as response:
        return response.read().decode()


def read_until(text: str, terminal: int) -> str:
    said = ""
    while text not in said:
        said += os.read(terminal, 4096).decode()
    return said
