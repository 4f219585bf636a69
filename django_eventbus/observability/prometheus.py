"""Measurements as metrics of prometheus_client. Nothing else imports that package but contrib."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

try:
    from prometheus_client import CollectorRegistry, Counter, Histogram
    from prometheus_client.metrics import MetricWrapperBase
except ImportError as error:
    raise ImportError(
        "Metrics for Prometheus need prometheus_client: pip install 'django-eventbus[prometheus]'."
    ) from error

from django_eventbus.observability.measurements import DEEDS, Kind, Measured, Measurement


class PrometheusSink:
    """Keeps what a process did in a registry, to be scraped."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._metrics = {each: _metric(each, registry) for each in DEEDS}
        #: The part of a metric with these labels, which takes longer to find there.
        self._parts: dict[tuple[Measurement, tuple[str, ...]], Any] = {}

    def write(self, measured: Iterable[Measured]) -> None:
        for measurement, labels, value in measured:
            part = self._parts.get((measurement, labels)) or self._part(measurement, labels)
            if measurement.kind is Kind.COUNTER:
                part.inc(value)
            else:
                part.observe(value)

    def _part(self, measurement: Measurement, labels: tuple[str, ...]) -> Any:
        part = self._metrics[measurement].labels(*labels)
        self._parts[measurement, labels] = part
        return part

    def close(self) -> None:
        """Take the metrics out of the registry."""
        for metric in self._metrics.values():
            self.registry.unregister(metric)


def _metric(measurement: Measurement, registry: CollectorRegistry) -> MetricWrapperBase:
    if measurement.kind is Kind.COUNTER:
        return Counter(measurement.name, measurement.help, measurement.labels, registry=registry)
    return Histogram(
        measurement.name,
        measurement.help,
        measurement.labels,
        buckets=measurement.buckets,
        registry=registry,
    )
