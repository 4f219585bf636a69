"""The tracer and trace contexts; the only module that imports OpenTelemetry."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django_eventbus.events.message import REDRIVEN_TRACEPARENT, TRACEPARENT, TRACESTATE
from django_eventbus.observability.tracing.attributes import SCHEMA_URL, SCOPE

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span, Tracer, TracerProvider

_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}"
)

#: The length of tracestate that the standard requires to pass on. A longer one may be omitted.
_LONGEST_STATE = 512


def ids_in(headers: Mapping[str, Any], name: str = TRACEPARENT) -> dict[str, str]:
    """Return trace_id and span_id of the context in the header *name*, if it is valid."""
    value = headers.get(name)
    found = _TRACEPARENT.fullmatch(value) if isinstance(value, str) else None
    return {"trace_id": found[1], "span_id": found[2]} if found else {}


def trace_id_in(headers: Mapping[str, Any]) -> str:
    """Return the id of the trace in *headers* as 32 hexadecimal digits, or ""."""
    return ids_in(headers).get("trace_id", "")


def carrier_of(headers: Mapping[str, Any]) -> dict[str, str]:
    """Return the creation context in the form that propagators read, if there is one."""
    if not ids_in(headers):
        return {}
    state = headers.get(TRACESTATE)
    is_carried = isinstance(state, str) and len(state) <= _LONGEST_STATE
    return {TRACEPARENT: headers[TRACEPARENT]} | ({TRACESTATE: state} if is_carried else {})


try:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    IS_INSTALLED = False
else:
    IS_INSTALLED = True
    # Not the propagators of OTEL_PROPAGATORS: the wire format defines the headers of a message.
    _propagator = TraceContextTextMapPropagator()
    #: The providers if a project has installed the API but not configured an SDK.
    _SILENT = (trace.ProxyTracerProvider, trace.NoOpTracerProvider)


def active_tracer() -> Tracer | None:
    """Return the tracer, or None if no SDK is configured."""
    # Check each time, because the SDK may be configured after the import of this module.
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
    """Start a span of *kind* in the trace of the headers *within*, or else in the current trace."""
    carrier = carrier_of(within or {})
    return tracer.start_span(
        name,
        context=_propagator.extract(carrier) if carrier else None,
        kind=trace.SpanKind[kind],
        attributes=attributes,
        links=links,
    )


def carried(span: Span) -> dict[str, str]:
    """Return the headers with the context of *span*."""
    headers: dict[str, str] = {}
    _propagator.inject(headers, trace.set_span_in_context(span))
    return headers


def links_to(
    headers: Mapping[str, Any], attributes: Mapping[str, Any] | None = None
) -> Iterator[Link]:
    """Yield links to the creation and to the re-drive of a message."""
    for name in (TRACEPARENT, REDRIVEN_TRACEPARENT):
        if ids := ids_in(headers, name):
            # Not with the propagator, which takes twice as long: a relay creates thousands of links
            # per second.
            flags = trace.TraceFlags(int(headers[name][-2:], 16))
            numbers = int(ids["trace_id"], 16), int(ids["span_id"], 16)
            yield trace.Link(trace.SpanContext(*numbers, True, flags), attributes)


def link_to_current() -> Iterator[Link]:
    """Yield a link to the current span if there is one."""
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        yield trace.Link(context)


def current(span: Any) -> AbstractContextManager[Any]:
    """Make *span* the current span in a block; None has no effect."""
    if span is None:
        return nullcontext()
    # Do not let OpenTelemetry record exceptions: their texts may quote a payload.
    return trace.use_span(span, record_exception=False, set_status_on_exception=False)


def failed(span: Span, kind: str) -> None:
    """Mark *span* as ended by an error of this *kind*."""
    span.set_status(trace.StatusCode.ERROR, kind)


def current_ids() -> dict[str, str]:
    """Return trace_id and span_id of the current span, if there is one."""
    context = trace.get_current_span().get_span_context() if IS_INSTALLED else None
    if context is None or not context.is_valid:
        return {}
    return {
        "trace_id": trace.format_trace_id(context.trace_id),
        "span_id": trace.format_span_id(context.span_id),
    }
