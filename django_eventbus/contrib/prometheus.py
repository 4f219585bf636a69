"""Serve metrics for Prometheus from a worker, or from a view of the project."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import Error, connections
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from django_eventbus.monitoring.table_metrics import table_metrics, unavailable_metrics
from django_eventbus.observability.metric_names import (
    EVENT_METRICS,
    TABLE_METRICS,
    Kind,
    Metric,
    MetricValue,
)
from django_eventbus.observability.metrics import Meter

try:
    from prometheus_client import (
        REGISTRY,
        CollectorRegistry,
        Counter,
        Histogram,
        start_http_server,
    )
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.metrics import MetricWrapperBase
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ImportError(
        "Metrics for Prometheus need prometheus_client: pip install 'django-eventbus[prometheus]'."
    ) from error

#: Seconds that a scrape waits for the database. Prometheus itself gives up after 10.
_PATIENCE = 5.0


class PrometheusSink:
    """Stores the metrics of this process in a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._metrics = {each: _metric(each, registry) for each in EVENT_METRICS}
        #: A cache of labelled metrics: the lookup in the registry takes longer.
        self._parts: dict[tuple[Metric, tuple[str, ...]], Any] = {}

    def write(self, values: Iterable[MetricValue]) -> None:
        for metric, labels, value in values:
            part = self._parts.get((metric, labels)) or self._part(metric, labels)
            if metric.kind is Kind.COUNTER:
                part.inc(value)
            else:
                part.observe(value)

    def _part(self, metric: Metric, labels: tuple[str, ...]) -> Any:
        part = self._metrics[metric].labels(*labels)
        self._parts[metric, labels] = part
        return part

    def close(self) -> None:
        """Remove the metrics from the registry."""
        for metric in self._metrics.values():
            self.registry.unregister(metric)


def _metric(metric: Metric, registry: CollectorRegistry) -> MetricWrapperBase:
    if metric.kind is Kind.COUNTER:
        return Counter(metric.name, metric.help, metric.labels, registry=registry)
    return Histogram(
        metric.name,
        metric.help,
        metric.labels,
        buckets=metric.buckets,
        registry=registry,
    )


class StatusCollector(Collector):
    """Reads the tables at each scrape."""

    def __init__(self, read: Callable[[], Iterable[MetricValue]]) -> None:
        self.read = read

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the metrics without values, so that registration reads no tables."""
        return [
            GaugeMetricFamily(each.name, each.help, labels=each.labels) for each in TABLE_METRICS
        ]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics of the tables."""
        families = dict(zip(TABLE_METRICS, self.describe(), strict=True))
        for metric, labels, value in self.read():
            families[metric].add_metric(labels, value)
        yield from (family for family in families.values() if family.samples)


class Reader:
    """Reads the tables in a thread; a scrape continues without them if that takes too long."""

    def __init__(self, patience: float = _PATIENCE) -> None:
        self.patience = patience
        # One at a time: if the database hangs, each scrape would use a thread and a connection.
        self._is_free = threading.Lock()

    def read(self) -> list[MetricValue]:
        if not self._is_free.acquire(timeout=self.patience):
            return unavailable_metrics()
        found: list[MetricValue] = []
        thread = threading.Thread(target=self._read, args=[found], name="scrape", daemon=True)
        thread.start()
        thread.join(self.patience)
        return list(found) or unavailable_metrics()

    def _read(self, found: list[MetricValue]) -> None:
        try:
            found += read_tables()
        finally:
            # The connections belong to this thread, which ends.
            connections.close_all()
            self._is_free.release()


def read_tables() -> list[MetricValue]:
    """Read the tables in this thread."""
    try:
        return table_metrics(timezone.now())
    except Error:
        return unavailable_metrics()


@contextmanager
def serving(port: int, address: str, registry: CollectorRegistry = REGISTRY) -> Iterator[str]:
    """Serve the metrics of this process and of the tables until the block ends; yield the URL."""
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
    """Return the metrics of the tables. The project must restrict access to this view."""
    registry = CollectorRegistry()
    registry.register(StatusCollector(read_tables))
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return HttpResponse(encode(registry), content_type=content_type)
