"""The span of a batch on its way to the broker: `publish`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from django_eventbus.conf import conf
from django_eventbus.models import OutboxEvent
from django_eventbus.tracing import names
from django_eventbus.tracing.descriptions import destination_of, error_type, operation
from django_eventbus.tracing.tracer import active_tracer, failed, links_to, started
from django_eventbus.transports.contract import (
    Dispatch,
    Receipt,
    Receipts,
    Refused,
    Rejected,
    Unroutable,
)

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span, Tracer

T = TypeVar("T")
#: Links of a span, and what it tells of single messages: an SDK keeps no more unless told to.
MOST = 128
#: What a receipt is called, the worst first.
_PROBLEMS: dict[type[Receipt], str] = {
    Rejected: "rejected",
    Refused: "refused",
    Unroutable: "unroutable",
}


def traced(rows: Sequence[OutboxEvent], dispatch: Dispatch) -> Dispatch:
    """Return *dispatch* with a span from the sending of *rows* to the last of their receipts."""
    found = active_tracer()
    return dispatch if found is None else partial(_sent, found, rows, dispatch)


def _sent(tracer: Tracer, rows: Sequence[OutboxEvent], dispatch: Dispatch) -> Receipts:
    span = _started(tracer, rows)
    receipts = _or_failed(span, dispatch)
    return partial(_accounted, span, rows, receipts)


def _accounted(span: Span, rows: Sequence[OutboxEvent], receipts: Receipts) -> Sequence[Receipt]:
    found = _or_failed(span, receipts)
    _tell(span, rows, found)
    span.end()
    return found


def _or_failed(span: Span, act: Callable[[], T]) -> T:
    try:
        return act()
    except BaseException as error:
        span.set_attribute(names.ERROR_TYPE, error_type(error))
        failed(span, error_type(error))
        span.end()
        raise


def _started(tracer: Tracer, rows: Sequence[OutboxEvent]) -> Span:
    destinations = {destination_of(row) for row in rows}
    attributes: dict[str, Any] = {**operation(names.PUBLISH), names.MESSAGE_COUNT: len(rows)}
    name = names.PUBLISH
    if len(destinations) == 1:
        (attributes[names.DESTINATION],) = destinations
        name = f"{names.PUBLISH} {attributes[names.DESTINATION]}"
    return started(tracer, name, "CLIENT", attributes, list(islice(_links(rows), MOST)))


def _links(rows: Sequence[OutboxEvent]) -> Iterator[Link]:
    for row in rows:
        yield from links_to(row.headers, {names.MESSAGE_ID: row.message_id})


def _tell(span: Span, rows: Sequence[OutboxEvent], receipts: Sequence[Receipt]) -> None:
    pairs = zip(rows, receipts, strict=True)
    not_taken = [(row, problem) for row, receipt in pairs if (problem := _problem(row, receipt))]
    if not not_taken:
        return
    span.set_attribute(names.NOT_TAKEN, len(not_taken))
    for row, problem in not_taken[:MOST]:
        span.add_event(problem, {names.MESSAGE_ID: row.message_id, names.EVENT_TYPE: row.type})
    worst = min((problem for _, problem in not_taken), key=list(_PROBLEMS.values()).index)
    span.set_attribute(names.ERROR_TYPE, worst)
    failed(span, worst)


def _problem(row: OutboxEvent, receipt: Receipt) -> str:
    if isinstance(receipt, Unroutable) and conf.unroutable == "ignore" and not row.is_addressed:
        return ""
    return _PROBLEMS.get(type(receipt), "")
