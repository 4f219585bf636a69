"""The project's OpenTelemetry, if it has any: the only module that imports it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django_eventbus.messages import REDRIVEN_TRACEPARENT, TRACEPARENT
from django_eventbus.tracing.names import SCHEMA_URL, SCOPE
from django_eventbus.tracing.trace_contexts import carrier_of, ids_in

try:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    IS_INSTALLED = False
else:
    IS_INSTALLED = True
    # Whatever OTEL_PROPAGATORS says: a message has the headers of the wire format.
    _propagator = TraceContextTextMapPropagator()
    #: Providers of a project that has the API and configured no SDK.
    _SILENT = (trace.ProxyTracerProvider, trace.NoOpTracerProvider)

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span, Tracer, TracerProvider


def active_tracer() -> Tracer | None:
    """Return the tracer to make spans with, or None if nobody would see them."""
    # Asked each time: the SDK may be configured after this module is loaded.
    provider = trace.get_tracer_provider() if IS_INSTALLED else None
    return None if provider is None or isinstance(provider, _SILENT) else _tracer_of(provider)


@lru_cache(maxsize=1)
def _tracer_of(provider: TracerProvider) -> Tracer:
    return provider.get_tracer(SCOPE, schema_url=SCHEMA_URL)


def started(
    tracer: Tracer,
    name: str,
    kind: str,
    attributes: Mapping[str, Any],
    links: Sequence[Link] = (),
    *,
    within: Mapping[str, Any] | None = None,
) -> Span:
    """Start a span of *kind*, in the trace of the headers *within*, or else in the current one."""
    carrier = carrier_of(within or {})
    return tracer.start_span(
        name,
        context=_propagator.extract(carrier) if carrier else None,
        kind=trace.SpanKind[kind],
        attributes=attributes,
        links=links,
    )


def carried(span: Span) -> dict[str, str]:
    """Return the headers that carry the context of *span*."""
    headers: dict[str, str] = {}
    _propagator.inject(headers, trace.set_span_in_context(span))
    return headers


def links_to(
    headers: Mapping[str, Any], attributes: Mapping[str, Any] | None = None
) -> Iterator[Link]:
    """Yield a link to where a message was created, and to where it was re-driven."""
    for name in (TRACEPARENT, REDRIVEN_TRACEPARENT):
        if ids := ids_in(headers, name):
            # Not by the propagator, which takes twice as long: a relay links thousands a second.
            flags = trace.TraceFlags(int(headers[name][-2:], 16))
            numbers = int(ids["trace_id"], 16), int(ids["span_id"], 16)
            yield trace.Link(trace.SpanContext(*numbers, True, flags), attributes)


def link_to_current() -> Iterator[Link]:
    """Yield a link to the current span if there is one."""
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        yield trace.Link(context)


def current(span: Any) -> AbstractContextManager[Any]:
    """Make *span* the current one meanwhile; None leaves everything as it is."""
    if span is None:
        return nullcontext()
    # Not its own way to record an exception, whose words may quote a payload.
    return trace.use_span(span, record_exception=False, set_status_on_exception=False)


def failed(span: Span, kind: str) -> None:
    """Mark *span* as ended by an error of this *kind*."""
    span.set_status(trace.StatusCode.ERROR, kind)


def current_ids() -> dict[str, str]:
    """Return trace_id and span_id of the current span; nothing if there is none."""
    context = trace.get_current_span().get_span_context() if IS_INSTALLED else None
    if context is None or not context.is_valid:
        return {}
    return {
        "trace_id": trace.format_trace_id(context.trace_id),
        "span_id": trace.format_span_id(context.span_id),
    }
