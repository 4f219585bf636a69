"""Serve the metrics to Prometheus: from a worker of its own, or by a view of the project."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from django.db import Error, connections
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

# First: it says what to install.
from django_eventbus.observability.prometheus import PrometheusSink  # isort: skip
from prometheus_client import REGISTRY, CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from django_eventbus.observability.measurements import GAUGES, Measured
from django_eventbus.observability.metrics import Meter
from django_eventbus.readings import no_readings, readings

#: Seconds that a scrape waits for the database. Prometheus itself gives up after 10.
_PATIENCE = 5.0


class StatusCollector(Collector):
    """Reads the tables at each scrape."""

    def __init__(self, read: Callable[[], Iterable[Measured]]) -> None:
        self.read = read

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Name what there is, so that nothing is read to find out."""
        return [GaugeMetricFamily(each.name, each.help, labels=each.labels) for each in GAUGES]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Return what the tables say now."""
        families = dict(zip(GAUGES, self.describe(), strict=True))
        for measurement, labels, value in self.read():
            families[measurement].add_metric(labels, value)
        yield from (family for family in families.values() if family.samples)


class Reader:
    """Reads the tables beside a scrape, which goes on without them if that takes long."""

    def __init__(self, patience: float = _PATIENCE) -> None:
        self.patience = patience
        # One at a time: a database that hangs would take a thread and a connection per scrape.
        self._is_free = threading.Lock()

    def read(self) -> list[Measured]:
        if not self._is_free.acquire(timeout=self.patience):
            return no_readings()
        found: list[Measured] = []
        thread = threading.Thread(target=self._read, args=[found], name="scrape", daemon=True)
        thread.start()
        thread.join(self.patience)
        return list(found) or no_readings()

    def _read(self, found: list[Measured]) -> None:
        try:
            found += read_tables()
        finally:
            # Of this thread, which ends.
            connections.close_all()
            self._is_free.release()


def read_tables() -> list[Measured]:
    """Read the tables in this thread."""
    try:
        return readings(timezone.now())
    except Error:
        return no_readings()


@contextmanager
def serving(port: int, address: str, registry: CollectorRegistry = REGISTRY) -> Iterator[str]:
    """Serve what this process does and what the tables say meanwhile; yield the URL."""
    sink, collector = PrometheusSink(registry), StatusCollector(Reader().read)
    registry.register(collector)
    try:
        with _listening(port, address, registry) as url, Meter(sink).measuring():
            yield url
    finally:
        registry.unregister(collector)
        sink.close()


@contextmanager
def _listening(port: int, address: str, registry: CollectorRegistry) -> Iterator[str]:
    server, thread = start_http_server(port, address, registry)
    try:
        yield f"http://{_host(address)}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Show what the tables say. Whoever may see it is up to the project."""
    registry = CollectorRegistry()
    registry.register(StatusCollector(read_tables))
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return HttpResponse(encode(registry), content_type=content_type)
