"""What is announced and what the tables say become metrics, with labels that are bounded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import get_args

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client import CollectorRegistry

import django_eventbus
from django_eventbus import Event, GiveUp, Skip, TooEarly, publish
from django_eventbus.conf import conf
from django_eventbus.consumer.deliveries import DeadDelivery
from django_eventbus.consumer.dlq_collector import Collector
from django_eventbus.contrib.prometheus import PrometheusSink
from django_eventbus.events.message import FINAL_KIND, SUBSCRIPTION, uuid7
from django_eventbus.exceptions import BrokerUnavailable
from django_eventbus.models import DeadLetter, Outage, OutboxEvent, Plan, Queue, Worker
from django_eventbus.monitoring import status
from django_eventbus.monitoring.table_metrics import table_metrics
from django_eventbus.observability.metric_names import EVENT_METRICS, OTHER, TABLE_METRICS, Kind
from django_eventbus.observability.metrics import EventTypes, Meter
from django_eventbus.outages import OutageWatch, Part
from django_eventbus.outbox.relay import Relay
from django_eventbus.redrive.letters import redrive
from tests.outbox.test_relay import ScriptedPublisher

# Metrics are the same on every database; on PostgreSQL those of RabbitMQ run.
pytestmark = pytest.mark.django_db(transaction=True)

SERVICE = "shop-tests"
_WATCHED = re.compile(r'OutageWatch\(.+, "(\w+)"\)')


class Metrics:
    """What a process would show at a scrape."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

    def value(self, name: str, **labels: str) -> float:
        """Return the sum of the samples that have these labels."""
        samples = [each for family in self.registry.collect() for each in family.samples]
        found = [each for each in samples if each.name == name]
        return sum(each.value for each in found if labels.items() <= each.labels.items())

    def labels(self, name: str, label: str) -> set[str]:
        samples = [each for family in self.registry.collect() for each in family.samples]
        return {each.labels[label] for each in samples if each.name == name}


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    """Measure what the test does."""
    shown = Metrics()
    with Meter(PrometheusSink(shown.registry)).measuring():
        yield shown


def outcomes(metrics: Metrics, **labels: str) -> float:
    return metrics.value("eventbus_outcomes_total", service=SERVICE, **labels)


def test_each_attempt_is_counted_as_the_first_a_retry_or_the_last(bus, metrics):
    @bus.subscribe("order.placed", queue="billing", name="charge", retry=["1s", "1s"])
    def charge(event):
        raise ValueError("no")

    publish("order.placed", {})
    bus.drain()

    place = {"queue": conf.queue("billing"), "subscription": "charge", "event_type": "order.placed"}
    assert outcomes(metrics) == 3
    assert outcomes(metrics, outcome="retried", attempt="first", **place) == 1
    assert outcomes(metrics, outcome="retried", attempt="retry", **place) == 1
    assert outcomes(metrics, outcome="parked", attempt="last", **place) == 1
    assert metrics.value("eventbus_parked_total", kind="failed", **place) == 1


def test_a_message_that_has_one_try_fails_at_its_last(bus, metrics):
    @bus.subscribe("order.placed", name="charge", retry=[])
    def charge(event):
        raise ValueError("no")

    bus.put()
    bus.consume()

    assert outcomes(metrics, outcome="parked", attempt="last") == 1


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, "handled"),
        (ValueError("no"), "retried"),
        (GiveUp(), "parked"),
        (Skip(), "skipped"),
        (TooEarly(until=timezone.now() + timedelta(days=1)), "deferred"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_every_outcome_has_a_count_and_a_duration(bus, metrics, error, outcome):
    @bus.subscribe("order.placed", name="charge")
    def charge(event):
        if error:
            raise error

    bus.put()
    bus.consume()

    name = "eventbus_handling_duration_seconds"
    assert outcomes(metrics, outcome=outcome, attempt="first") == outcomes(metrics) == 1
    assert metrics.value(f"{name}_count", outcome=outcome) == 1
    assert metrics.value(f"{name}_sum", outcome=outcome) > 0


def test_a_repetition_is_counted_and_not_timed(bus, metrics):
    bus.subscribe("order.placed", name="charge")(print)
    message = bus.put()
    bus.put(message)
    bus.consume()
    bus.consume()

    assert outcomes(metrics, outcome="repeated") == 1
    assert metrics.value("eventbus_handling_duration_seconds_count") == 1


def test_the_age_of_an_event_is_measured_when_it_is_handled(bus, metrics):
    bus.subscribe("order.placed", name="charge")(print)
    bus.put(sent_at=timezone.now() - timedelta(seconds=100))
    bus.consume()
    assert 100 <= metrics.value("eventbus_event_age_seconds_sum") < 110

    bus.put(sent_at=timezone.now() + timedelta(seconds=100))
    bus.put()
    bus.consume()
    bus.consume()

    assert metrics.value("eventbus_event_age_seconds_sum") < 110
    assert metrics.value("eventbus_event_age_seconds_count", subscription="charge") == 2


def test_the_size_of_bodies_is_measured(bus, metrics):
    bus.subscribe("order.placed", name="charge")(print)
    bus.put(body=b'"' + b"x" * 998 + b'"')
    bus.consume()

    assert metrics.value("eventbus_body_bytes_sum", queue=conf.queue()) == 1000


def test_what_a_stranger_sends_adds_one_label_however_much_it_is(bus, metrics):
    bus.subscribe("order.placed", name="charge")(print)
    for number in range(5):
        bus.put(type=f"scan.{number}", routing_key=f"scan.{number}")
        bus.put(type=f"\x00{number}\n", body=b"\xff")
        bus.put(type=f"aimed.{number}", headers={SUBSCRIPTION: f"nobody-{number}"})
    for _ in range(15):
        bus.consume()

    assert outcomes(metrics) == outcomes(metrics, event_type=OTHER) == 15
    assert metrics.labels("eventbus_outcomes_total", "subscription") == {"", OTHER}
    assert metrics.value("eventbus_parked_total", kind="undecodable", subscription="") == 5


def test_types_that_a_wildcard_takes_are_labels_up_to_a_limit(bus, metrics):
    bus.subscribe("order.*", name="charge")(print)
    meter_types = EventTypes(limit=3)
    seen = [meter_types.label(f"order.n{number}", is_ours=True) for number in range(5)]
    assert seen == ["order.n0", "order.n1", "order.n2", OTHER, OTHER]
    assert meter_types.label("order.n1", is_ours=False) == "order.n1"

    bus.put(type="order.shipped")
    bus.consume()

    assert outcomes(metrics, event_type="order.shipped") == 1


def test_declared_types_are_always_labels(bus):
    class Returned(Event, type="parcel.returned"):
        pass

    bus.subscribe("parcel.lost", name="search")(print)
    none = EventTypes(limit=0)

    known = [none.label(each, is_ours=False) for each in ("parcel.lost", "parcel.returned")]

    assert known == ["parcel.lost", "parcel.returned"]
    assert none.label("parcel.found", is_ours=True) == OTHER


def test_a_kind_that_a_message_in_a_dlq_claims_is_no_label(bus, metrics):
    bus.subscribe("order.placed", name="charge")(print)
    bus.put(headers={FINAL_KIND: "made-up"})

    Collector(bus.publisher).consume(DeadDelivery(delivery=bus.receive(), queue=conf.queue()))

    assert outcomes(metrics) == outcomes(metrics, outcome="repeated") == 1
    assert metrics.labels("eventbus_parked_total", "kind") == set()


def test_every_receipt_of_the_broker_is_a_result(db, metrics):
    for end in ("ok", "lost", "full", "broken"):
        publish(f"row.{end}", {})

    Relay(ScriptedPublisher(), "default").relay_once()

    def published(result: str, event_type: str) -> float:
        return metrics.value("eventbus_published_total", result=result, event_type=event_type)

    assert published("published", "row.ok") == 1
    assert published("unroutable", "row.lost") == 1
    assert published("failed", "row.broken") == 1
    assert metrics.value("eventbus_published_total") == 3


def test_outages_are_counted_by_kind_when_they_begin_and_timed_when_they_end(metrics):
    watch = OutageWatch(Relay, "relay")
    watch.begin(BrokerUnavailable("gone", kind="blocked"))
    watch.begin(BrokerUnavailable("still gone", kind="blocked"))

    labels = {"part": "relay", "kind": "blocked"}
    assert metrics.value("eventbus_outages_total", **labels) == 1
    assert metrics.value("eventbus_outage_duration_seconds_count") == 0

    watch.end()

    assert metrics.value("eventbus_outage_duration_seconds_count", **labels) == 1
    assert metrics.value("eventbus_outages_total") == 1


@pytest.mark.parametrize("part", ["relay", "consumer", "transport", "command"])
def test_the_part_of_an_outage_is_not_the_name_of_the_class_that_waits(metrics, part):
    class RenamedLoop:
        pass

    OutageWatch(RenamedLoop, part).begin(BrokerUnavailable("gone", kind="blocked"))

    assert metrics.labels("eventbus_outages_total", "part") == {part}


def test_the_parts_of_outages_are_those_that_dashboards_and_alerts_know():
    source = Path(django_eventbus.__file__).parent.rglob("*.py")
    used = {part for each in source for part in _WATCHED.findall(each.read_text())}

    assert used == {"relay", "consumer", "transport", "command"}
    assert used == set(Outage.Part.values) == set(get_args(Part))


def test_re_drives_are_counted_and_what_comes_of_them_too(bus, metrics):
    ills = [ValueError("no")]

    @bus.subscribe("order.placed", name="charge", retry=[])
    def charge(event):
        if ills:
            raise ills.pop()

    bus.put()
    bus.consume()
    redrive([bus.letter.pk], by="ada", using="default")
    bus.drain()

    place = {"queue": conf.queue(), "subscription": "charge", "event_type": "order.placed"}
    assert metrics.value("eventbus_redriven_total", **place) == 1
    assert outcomes(metrics, outcome="handled", **place) == 1


def test_no_label_is_an_id_or_of_a_payload():
    allowed = {
        "service", "queue", "subscription", "event_type", "outcome", "attempt", "result", "kind",
        "part", "state", "action",
    }  # fmt: skip

    for each in (*EVENT_METRICS, *TABLE_METRICS):
        assert set(each.labels) <= allowed, each.name
        assert each.name.startswith("eventbus_")
        assert each.name.endswith("_total") == (each.kind is Kind.COUNTER), each.name


def test_a_meter_that_is_done_hears_nothing(bus):
    shown = Metrics()
    with Meter(PrometheusSink(shown.registry)).measuring():
        pass
    bus.subscribe("order.placed", name="charge")(print)
    bus.put()
    bus.consume()

    assert outcomes(shown) == 0


# What the tables say.


def shown() -> dict[tuple[str, ...], float]:
    """Return the table_metrics by name and labels, without the service."""
    found = table_metrics(timezone.now())
    assert {labels[0] for _, labels, _ in found} == {SERVICE}
    return {(metric.name, *labels[1:]): value for metric, labels, value in found}


def park(queue: str, **values: str) -> None:
    DeadLetter.objects.create(
        queue=queue, message_id=str(uuid7()), kind="failed", body=b"", **values
    )


def fill_the_tables(queue: str) -> None:
    now = timezone.now()
    old = now - timedelta(seconds=90)
    OutboxEvent.objects.create(state="ready", type="a.b", body=b"{}", created_at=old)
    OutboxEvent.objects.create(state="unroutable", type="a.b", body=b"{}")
    for state in ("open", "unknown", "healed"):
        park(queue, state=state)
    park("of.a.former.release")
    measured = {"messages": 5, "consumers": 2, "tiers": {"30s": 1, "5m": 2}, "dlq_messages": 4}
    Queue.objects.create(name=queue, measured_at=now, **measured)
    Worker.objects.create(kind="both", host="a", pid=1, outage="blocked", outage_since=now)
    Plan.objects.create(state="paused", in_flight=1, fail_percent=1)


def test_the_gauges_are_what_the_tables_say(bus):
    bus.subscribe("order.*", queue="billing")(print)
    billing = conf.queue("billing")
    fill_the_tables(billing)

    found = shown()

    assert {name for name, *_ in found} == {each.name for each in TABLE_METRICS}
    assert 90 <= found.pop(("eventbus_outbox_oldest_ready_age_seconds",)) < 120
    assert found.pop(("eventbus_queue_measured_age_seconds", billing)) < 30
    assert {labels: value for labels, value in found.items() if value} == {
        ("eventbus_database_up",): 1,
        ("eventbus_outbox_events", "ready"): 1,
        ("eventbus_outbox_events", "unroutable"): 1,
        ("eventbus_dead_letters", billing): 2,
        ("eventbus_dead_letters", OTHER): 1,
        ("eventbus_queue_messages", billing): 5,
        ("eventbus_queue_tier_messages", billing): 3,
        ("eventbus_queue_dlq_messages", billing): 4,
        ("eventbus_queue_consumers", billing): 2,
        ("eventbus_workers", "both"): 1,
        ("eventbus_workers_in_outage", "blocked"): 1,
        ("eventbus_plans", "redrive", "paused"): 1,
    }


def test_what_there_is_none_of_is_0_and_what_is_unknown_is_absent(bus):
    bus.subscribe("order.*", queue="billing")(print)

    found = shown()

    assert found["eventbus_dead_letters", conf.queue("billing")] == 0
    assert found["eventbus_workers", "consumer"] == 0
    assert found["eventbus_plans", "discard", "running"] == 0
    assert ("eventbus_queue_messages", conf.queue("billing")) not in found


def test_dead_letters_are_counted_no_further_than_a_person_cares(bus, monkeypatch):
    bus.subscribe("order.*", queue="billing")(print)
    monkeypatch.setattr(status, "COUNT_LIMIT", 2)
    for _ in range(5):
        park(conf.queue("billing"))

    assert shown()["eventbus_dead_letters", conf.queue("billing")] == 3


@pytest.mark.postgres
def test_a_reading_scans_no_table_of_messages(bus):
    """The planner is told not to: with a plan that needs no scan, there is none."""
    bus.subscribe("order.*", queue="billing")(print)
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
    try:
        with CaptureQueriesContext(connection) as captured:
            table_metrics(timezone.now())
        asked = [each["sql"] for each in captured]
        for sql in asked:
            if "eventbus_outboxevent" in sql or "eventbus_deadletter" in sql:
                with connection.cursor() as cursor:
                    cursor.execute(f"EXPLAIN {sql}")
                    plan = "\n".join(line for (line,) in cursor.fetchall())
                assert "Seq Scan" not in plan, f"{sql}\n{plan}"
        assert any("eventbus_deadletter" in sql for sql in asked)
    finally:
        connection.close()


def test_a_reading_takes_as_many_queries_however_much_there_is(bus):
    bus.subscribe("order.*", queue="billing")(print)

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            table_metrics(timezone.now())
        return len(captured)

    few = queries()
    for _ in range(20):
        park(conf.queue("billing"))
        publish("order.placed", {})
        Worker.objects.create(kind="both", host="a", pid=1)
        Plan.objects.create(state="running", in_flight=1, fail_percent=1)

    assert queries() == few <= 20
