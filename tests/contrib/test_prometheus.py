"""Prometheus scrapes a worker, or a view of the project, and a database that is away spoils nothing."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from urllib.request import urlopen

import pytest
from django.db import connection, connections
from django.http import HttpResponse
from django.test import RequestFactory
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from django_eventbus import publish
from django_eventbus.contrib.prometheus import Reader, metrics, serving
from django_eventbus.observability.metric_names import DATABASE_UP, EVENT_METRICS, TABLE_METRICS
from tests.end_to_end.oracle import FAST
from tests.support.bus import table_away
from tests.support.helpers import eventually
from tests.support.processes import DJANGO, ManageProcess

# Metrics are the same on every database; on PostgreSQL those of RabbitMQ run.
pytestmark = pytest.mark.django_db(transaction=True)

ACTS = {"queue": "shop.shop-tests.acts", "subscription": "shop.act", "event_type": "act.now"}


class Scraped:
    """What a scrape has found."""

    def __init__(self, text: str) -> None:
        self.families = list(text_string_to_metric_families(text))

    @property
    def names(self) -> set[str]:
        return {each.name for each in self.families}

    def value(self, name: str, **labels: str) -> float:
        """Return the sum of the samples that have these labels."""
        samples = [each for family in self.families for each in family.samples]
        found = [each for each in samples if each.name == name]
        return sum(each.value for each in found if labels.items() <= each.labels.items())


def scrape(url: str) -> Scraped:
    with urlopen(url, timeout=20) as response:
        return Scraped(response.read().decode())


def url_of(worker: ManageProcess) -> str:
    worker.wait_for("Metrics are at ")
    return re.search(r"Metrics are at (http://\S+/metrics)\.", worker.output)[1]


def scraped(worker: ManageProcess, name: str, value: float, **labels: str) -> Scraped:
    """Scrape until a metric has this value."""
    url = url_of(worker)

    def found() -> Scraped | None:
        shown = scrape(url)
        return shown if shown.value(name, **labels) == value else None

    return eventually(found, timeout=30, message=lambda: worker.output)


def family(name: str) -> str:
    return name.removesuffix("_total")


def test_a_worker_serves_what_it_did_and_what_the_tables_say(manage):
    worker = manage("consume_events", "--with-relay", "--metrics-port", "0", env=FAST)
    publish("act.now", {"do": "ok"})
    publish("act.now", {"do": "fail"})

    last = {"outcome": "parked", "attempt": "last", **ACTS}
    shown = scraped(worker, "eventbus_outcomes_total", 1, **last)

    assert shown.value("eventbus_dead_letters", queue=ACTS["queue"]) == 1
    assert shown.value("eventbus_published_total", result="published", event_type="act.now") == 2
    assert shown.value("eventbus_outcomes_total", outcome="handled", **ACTS) == 1
    assert shown.value("eventbus_outcomes_total", outcome="retried", **ACTS) == 2
    assert shown.value("eventbus_handling_duration_seconds_count", **ACTS) == 4
    assert shown.value("eventbus_event_age_seconds_count", **ACTS) == 1
    assert shown.names >= {family(each.name) for each in EVENT_METRICS}
    assert "python_info" in shown.names
    scraped(worker, "eventbus_queue_consumers", 1, queue=ACTS["queue"])
    scraped(worker, "eventbus_workers", 1, kind="both")
    worker.terminate()
    assert worker.wait() == 0


def test_a_relay_serves_what_it_sent(manage):
    relay = manage("relay_events", "--metrics-port", "0", env=FAST)
    publish("count.up", {})

    shown = scraped(relay, "eventbus_published_total", 1, result="published")

    assert shown.value("eventbus_database_up") == 1
    assert url_of(relay).startswith("http://127.0.0.1:")


def test_tables_that_cannot_be_read_leave_the_counters(manage):
    # Without a relay, which needs the table that is taken away.
    worker = manage("consume_events", "--metrics-port", "0", env=FAST)
    worker.wait_for("Consuming")
    publish("count.up", {})
    manage.run("relay_events", "--once", env=FAST)
    scraped(worker, "eventbus_outcomes_total", 1, outcome="handled")

    with table_away("eventbus_plan"):
        shown = scrape(url_of(worker))

    assert shown.value("eventbus_outcomes_total", outcome="handled") == 1
    assert shown.names & {each.name for each in TABLE_METRICS} == {DATABASE_UP.name}
    assert shown.value("eventbus_database_up") == 0
    assert scrape(url_of(worker)).value("eventbus_database_up") == 1


@pytest.mark.postgres
def test_metrics_are_served_before_there_is_a_database(manage):
    environment = {**FAST, "EVENTBUS_TEST_DATABASE_URL": "postgres://nobody@127.0.0.1:1/nowhere"}

    relay = manage("relay_events", "--metrics-port", "0", env=environment)

    shown = scraped(relay, "eventbus_outages_total", 1, part="command", kind="database")
    assert shown.value("eventbus_database_up") == 0
    relay.terminate()
    assert relay.wait() == 0


@pytest.mark.postgres
def test_a_database_that_hangs_delays_a_scrape_only_so_long():
    reader = Reader(patience=0.3)
    other = connections["default"].copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("BEGIN; LOCK TABLE eventbus_plan")

            hanging, after = reader.read(), reader.read()

            assert hanging == after == [(DATABASE_UP, ("shop-tests",), 0)]
            assert waiting() == 1
            cursor.execute("ROLLBACK")
    finally:
        other.close()
    eventually(lambda: len(reader.read()) > 1)


def waiting() -> int:
    """Return how many wait for the table that is locked."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return cursor.fetchone()[0]


@pytest.mark.postgres
def test_a_scrape_leaves_no_connection_behind(manage):
    relay = manage("relay_events", "--metrics-port", "0", env=FAST)
    scraped(relay, "eventbus_workers", 1, kind="relay")

    for _ in range(10):
        scrape(url_of(relay))

    # Those of the relay, the heartbeat and the look at the queues.
    eventually(lambda: 0 < sessions(manage.name) <= 3)


def sessions(application: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", [application]
        )
        return cursor.fetchone()[0]


def test_a_port_that_is_taken_is_one_sentence(manage):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        ended = manage.run("relay_events", "--metrics-port", port, env=FAST)

    assert ended.returncode == 1
    said = ended.output.splitlines()[-1]
    assert said.startswith(f"CommandError: Metrics cannot be served at 127.0.0.1:{port}: ")
    assert "Traceback" not in ended.output


@pytest.mark.parametrize("port", ["http", "-1", "65536"])
def test_what_is_no_port_is_refused(manage, port):
    ended = manage.run("relay_events", f"--metrics-port={port}", env=FAST)

    assert ended.returncode == 2
    assert f"'{port}' is not a port from 0 to 65535" in ended.output


@pytest.fixture
def without_prometheus(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that has no prometheus_client."""
    (tmp_path / "prometheus_client.py").write_text("raise ImportError('it is not installed')")
    return {**FAST, "PYTHONPATH": str(tmp_path)}


def test_without_the_client_a_worker_works_and_metrics_name_the_remedy(manage, without_prometheus):
    # Not forked from a process that has imported it.
    fresh = {"env": without_prometheus, "program": DJANGO}
    plain = manage.run("relay_events", "--once", **fresh)
    asked = manage.run("relay_events", "--once", "--metrics-port", "0", **fresh)

    assert plain.returncode == 0, plain.output
    assert asked.returncode == 1
    assert asked.output.splitlines()[-1] == (
        "CommandError: Metrics for Prometheus need prometheus_client: "
        "pip install 'django-eventbus[prometheus]'."
    )


def test_an_address_of_the_other_family_is_shown_as_one(db):
    registry = CollectorRegistry()
    with serving(0, "::1", registry) as url:
        assert url.startswith("http://[::1]:")
        assert scrape(url).value("eventbus_database_up") == 1

    assert list(registry.collect()) == []


# The view of a web process.


def get(method: str = "get", **headers: str) -> HttpResponse:
    request = getattr(RequestFactory(), method)("/metrics", headers=headers)
    return metrics(request)


def test_the_view_shows_what_the_tables_say_and_nothing_else(bus):
    bus.subscribe("order.*", queue="billing")(print)
    publish("order.placed", {})

    response = get()

    shown = Scraped(response.content.decode())
    assert response["Content-Type"].startswith("text/plain; version=")
    assert shown.value("eventbus_outbox_events", state="ready") == 1
    known = {each.name for each in TABLE_METRICS if not each.name.startswith("eventbus_queue")}
    assert known <= shown.names <= {each.name for each in TABLE_METRICS}


def test_the_view_speaks_open_metrics_to_whoever_asks_for_it(bus):
    response = get(accept="application/openmetrics-text; version=1.0.0")

    assert response["Content-Type"].startswith("application/openmetrics-text")
    assert list(openmetrics(response.content.decode()))


def test_the_view_changes_nothing(bus):
    assert get("head").status_code == 200
    assert get("post").status_code == 405


def test_the_view_answers_also_if_the_tables_cannot_be_read(bus):
    with table_away("eventbus_plan"):
        response = get()

    shown = Scraped(response.content.decode())
    assert (response.status_code, shown.names) == (200, {DATABASE_UP.name})
    assert shown.value("eventbus_database_up") == 0
