"""The project's OpenTelemetry, as a test sees it: the real SDK, with its spans kept in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, Tracer, format_span_id, format_trace_id


class Spans:
    """The spans that have ended, and a tracer to make some with."""

    def __init__(self, provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
        self.exporter = exporter
        self.tracer: Tracer = provider.get_tracer("tests")

    def named(self, operation: str) -> list[ReadableSpan]:
        """Return the spans of *operation*, in the order in which they ended."""
        found = self.exporter.get_finished_spans()
        return [span for span in found if span.name.split()[0] == operation]

    def one(self, operation: str) -> ReadableSpan:
        (span,) = self.named(operation)
        return span

    @property
    def traces(self) -> set[str]:
        """The ids of all traces."""
        found = self.exporter.get_finished_spans()
        return {format_trace_id(span.context.trace_id) for span in found}


def traceparent(context: SpanContext) -> str:
    ids = f"{format_trace_id(context.trace_id)}-{format_span_id(context.span_id)}"
    return f"00-{ids}-{context.trace_flags:02x}"


def parent(span: ReadableSpan) -> str:
    """Return the id of the span's parent, or ""."""
    return format_span_id(span.parent.span_id) if span.parent else ""


def own_id(span: ReadableSpan) -> str:
    return format_span_id(span.context.span_id)


def linked(span: ReadableSpan) -> list[str]:
    """Return the ids of the spans that *span* is linked to."""
    return [format_span_id(link.context.span_id) for link in span.links]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """Configure an SDK for one test."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # Not set_tracer_provider(), which a process can do once.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield Spans(provider, exporter)
    provider.shutdown()
