"""StatsD is sent the same metrics under the same names, and nobody waits for it."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable, Iterator

import pytest
from django.utils import timezone

from django_eventbus import publish
from django_eventbus.conf import conf
from django_eventbus.conf.parsers import StatsdServer
from django_eventbus.contrib import celery_runs
from django_eventbus.exceptions import BrokerUnavailable
from django_eventbus.models import Worker
from django_eventbus.monitoring.table_metrics import TableMetricsReporter
from django_eventbus.observability import statsd
from django_eventbus.observability.metric_names import (
    EVENT_METRICS,
    OUTBOX,
    OUTCOMES,
    TABLE_METRICS,
)
from django_eventbus.observability.metrics import Meter
from django_eventbus.observability.statsd import StatsdSink
from django_eventbus.outages import OutageWatch
from django_eventbus.outbox.relay import Relay
from tests.end_to_end.oracle import FAST
from tests.monitoring.test_heartbeat import worker
from tests.support.bus import table_away
from tests.support.helpers import eventually

# Metrics are the same on every database; on PostgreSQL those of RabbitMQ run.
pytestmark = pytest.mark.django_db(transaction=True)

LINE = re.compile(r"([\w.]+):([\d.]+)\|([chg])\|#(\S+)")


class Agent:
    """What listens where StatsD would."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.setblocking(False)
        self.datagrams: list[bytes] = []

    @property
    def port(self) -> int:
        return self.socket.getsockname()[1]

    def lines(self) -> list[tuple[str, float, str, dict[str, str]]]:
        """Return all that has arrived: name, value, kind and tags."""
        try:
            while True:
                self.datagrams.append(self.socket.recv(65536))
        except BlockingIOError:
            pass
        return [_parsed(line) for each in self.datagrams for line in each.decode().split("\n")]

    def sum(self, name: str, **tags: str) -> float:
        found = [each for each in self.lines() if each[0] == name]
        return sum(value for _, value, _, own in found if tags.items() <= own.items())


def _parsed(line: str) -> tuple[str, float, str, dict[str, str]]:
    found = LINE.fullmatch(line)
    assert found, line
    tags = dict(tag.split(":", 1) for tag in found[4].split(","))
    return found[1], float(found[2]), found[3], tags


@pytest.fixture
def agent() -> Iterator[Agent]:
    listening = Agent()
    yield listening
    listening.socket.close()


@pytest.fixture
def sink(agent: Agent) -> Iterator[StatsdSink]:
    made = StatsdSink(StatsdServer("127.0.0.1", agent.port))
    yield made
    made.close()


@pytest.fixture
def connected(settings) -> Iterator[Callable[[str], None]]:
    """Connect as the start of a process does, with a setting of STATSD."""
    made: list[Meter] = []

    def connect(url: str) -> None:
        settings.EVENTBUS = {**settings.EVENTBUS, "STATSD": url}
        if meter := statsd.connect():
            made.append(meter)

    yield connect
    for meter in made:
        meter.disconnect()
        meter.sink.close()


def test_a_worker_sends_what_it_did_and_what_the_tables_say(manage, agent):
    settings = json.loads(FAST["EVENTBUS_TEST_SETTINGS"])
    settings["STATSD"] = f"statsd://127.0.0.1:{agent.port}?prefix=shop"
    environment = {"EVENTBUS_TEST_SETTINGS": json.dumps(settings)}
    publish("act.now", {"do": "fail"})

    process = manage("consume_events", "--with-relay", env=environment)

    tags = {"service": "shop-tests", "subscription": "shop.act", "event_type": "act.now"}
    outcomes = "shop.eventbus_outcomes_total"
    eventually(lambda: agent.sum(outcomes, outcome="parked", attempt="last", **tags) == 1)
    assert agent.sum(outcomes, outcome="retried", attempt="first", **tags) == 1
    assert agent.sum(outcomes, outcome="retried", attempt="retry", **tags) == 1
    assert agent.sum("shop.eventbus_published_total", result="published") == 1
    eventually(lambda: agent.sum("shop.eventbus_database_up"))
    process.terminate()
    assert process.wait() == 0
    known = {f"shop.{each.name}" for each in (*EVENT_METRICS, *TABLE_METRICS)}
    assert {name for name, *_ in agent.lines()} <= known


def test_the_kind_of_a_line_is_that_of_its_measurement(bus, agent, sink):
    bus.subscribe("order.placed", name="charge")(print)
    with Meter(sink).measuring():
        bus.put(sent_at=timezone.now())
        bus.consume()
    TableMetricsReporter(sink, worker()).report()

    kinds = {name: kind for name, _, kind, _ in agent.lines()}

    assert kinds["eventbus_outcomes_total"] == "c"
    assert kinds["eventbus_handling_duration_seconds"] == "h"
    assert kinds["eventbus_event_age_seconds"] == "h"
    assert kinds["eventbus_outbox_events"] == "g"
    assert kinds.keys() >= {each.name for each in TABLE_METRICS if "queue" not in each.name}
    assert agent.sum("eventbus_database_up") == 1


def test_what_became_of_a_message_is_one_datagram_and_many_lines_are_few(bus, agent, sink):
    bus.subscribe("order.placed", name="charge")(print)
    with Meter(sink).measuring():
        bus.put()
        bus.consume()
    agent.lines()
    assert len(agent.datagrams) == 1

    sink.write([(OUTBOX, ("shop", "ready"), number) for number in range(1000)])

    agent.lines()
    assert len(agent.datagrams) < 60
    assert max(map(len, agent.datagrams)) <= 1432
    assert agent.sum("eventbus_outbox_events", state="ready") == sum(range(1000))


def test_a_name_cannot_break_a_line_and_an_empty_tag_is_left_out(agent, sink):
    sink.write([(OUTCOMES, ("shop", "a|b,c", "#\n", "", "handled", "first"), 1)])

    (line,) = agent.lines()

    assert line[3] == {
        "service": "shop", "queue": "a_b_c", "subscription": "__", "outcome": "handled",
        "attempt": "first",
    }  # fmt: skip


def test_only_the_oldest_worker_reports_what_the_tables_say(agent, sink):
    first, second = worker(), worker()
    for each in (first, second):
        each.save(force_insert=True)

    TableMetricsReporter(sink, second).report()
    assert agent.lines() == []

    TableMetricsReporter(sink, first).report()
    assert agent.sum("eventbus_workers", kind=Worker.Kind.CONSUMER) == 2


def test_a_turn_of_celery_is_measured_too(bus, agent, connected, monkeypatch):
    monkeypatch.setattr(celery_runs, "_throttles", {})
    monkeypatch.setattr(celery_runs, "_heartbeats", {})
    connected(f"statsd://127.0.0.1:{agent.port}")
    bus.subscribe("order.placed", name="charge")(print)
    publish("order.placed", {})

    celery_runs.relay_ready("default", within=10, every=10)
    celery_runs.consume_due(within=10, every=10)

    assert agent.sum("eventbus_published_total", result="published") == 1
    assert agent.sum("eventbus_outcomes_total", outcome="handled", subscription="charge") == 1
    assert agent.sum("eventbus_database_up") == 1


def test_tables_that_cannot_be_read_are_reported_as_that(agent, sink):
    with table_away("eventbus_plan"), pytest.raises(Exception, match="eventbus_plan"):
        TableMetricsReporter(sink, worker()).report()

    ((name, value, _, tags),) = agent.lines()

    assert (name, value, tags) == ("eventbus_database_up", 0, {"service": "shop-tests"})


@pytest.mark.parametrize("host", ["127.0.0.1:1", "nobody.invalid", "255.255.255.255", "[::1]:1"])
def test_a_server_that_is_not_there_delays_and_fails_nothing(bus, connected, host):
    bus.subscribe("order.placed", name="charge")(print)
    connected(f"statsd://{host}")
    watch, began = OutageWatch(Relay, "relay"), time.monotonic()

    for _ in range(500):
        watch.begin(BrokerUnavailable("gone"))
        watch.end()

    assert time.monotonic() - began < 5
    bus.put()
    assert [type(each).__name__ for each in bus.consume()] == ["Handled"]


def test_a_name_is_looked_up_beside_the_work(bus, agent, connected):
    connected(f"statsd://localhost:{agent.port}")
    watch = OutageWatch(Relay, "relay")

    def is_heard() -> bool:
        watch.begin(BrokerUnavailable("gone"))
        watch.end()
        return agent.sum("eventbus_outages_total", kind="connection") > 0

    eventually(is_heard)


def test_a_wrong_setting_is_left_to_the_checks(connected):
    connected("http://127.0.0.1:8125")


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("statsd://127.0.0.1", StatsdServer("127.0.0.1", 8125, "")),
        ("statsd://127.0.0.1:9125?prefix=shop", StatsdServer("127.0.0.1", 9125, "shop")),
        ("statsd://[::1]:9125/?prefix=shop.orders.", StatsdServer("::1", 9125, "shop.orders")),
    ],
)
def test_the_url_says_where_and_by_what_prefix(settings, url, server):
    settings.EVENTBUS = {**settings.EVENTBUS, "STATSD": url}

    assert conf.statsd == server
