"""The status as text for a terminal, and as values for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django_eventbus.durations import rough
from django_eventbus.figures import QueueFigures, Span, Status, WorkerFigures
from django_eventbus.models.throughput import COUNTED
from django_eventbus.needs import Need, needs, number, verdict


def as_json(status: Status) -> dict[str, Any]:
    """Return the status with what needs doing, in values that JSON has."""
    found = [{"code": each.code, "words": each.words, **each.about} for each in needs(status)]
    return {"needs": found, **_plain(asdict(status))}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.isoformat() if isinstance(value, datetime) else value


def as_text(status: Status) -> Iterator[str]:
    """Yield the lines that a person reads."""
    yield from _about_needs(needs(status))
    outbox, letters = status.outbox, status.dead_letters
    lag = f", oldest for {_age(status.at, outbox.oldest_ready_at)}" if outbox.ready else ""
    yield ""
    yield (
        f"Outbox: {number(outbox.ready)} ready{lag}, {number(outbox.scheduled)} scheduled, "
        f"{number(outbox.unroutable)} unroutable, {number(outbox.failed)} failed"
    )
    yield (
        f"Dead letters: {number(letters.open)} open, {number(letters.new_in_hour)} new within the "
        f"hour, {number(letters.new_in_day)} within the day, {number(letters.redriving)} re-driving, "
        f"{number(letters.ignored)} ignored for now"
    )
    yield f"Last hour: {_sums(status.hour)}"
    yield f"Last day: {_sums(status.day)}"
    yield ""
    yield from _table(_queue_rows(status))
    yield ""
    yield from _table(_worker_rows(status))
    for plan in status.plans:
        yield f"Plan {plan.id} ({plan.action}) is {plan.state}: {plan.settled:,} of {plan.total:,} settled"
    for outage in status.outages:
        end = outage.ended_at and _age(outage.ended_at, outage.began_at)
        lasted = f"lasted {end}" if end else ("lasts" if outage.is_lasting else "end unknown")
        yield (
            f"Outage ({outage.kind}) of the {outage.part} on {outage.host}, "
            f"{_age(status.at, outage.began_at)} ago, {lasted}"
        )


def _about_needs(found: Sequence[Need]) -> Iterator[str]:
    yield verdict(list(found))
    for need in found:
        yield f"- {need.words}"


def _sums(spans: Iterable[Span]) -> str:
    listed = list(spans)
    return ", ".join(f"{sum(getattr(each, name) for each in listed):,} {name}" for name in COUNTED)


def _queue_rows(status: Status) -> Iterator[Sequence[str]]:
    yield "QUEUE", "MESSAGES", "IN TIERS", "IN DLQ", "CONSUMERS", "MEASURED"
    for queue in status.queues:
        figures = (queue.messages, queue.in_tiers, queue.dlq_messages, queue.consumers)
        yield queue.name, *map(_known, figures), _measured(status.at, queue)


def _measured(now: datetime, queue: QueueFigures) -> str:
    age = f"{_age(now, queue.measured_at)} ago" if queue.measured_at else "never"
    return f"{age}: {queue.trouble}" if queue.trouble else age


def _worker_rows(status: Status) -> Iterator[Sequence[str]]:
    yield "WORKER", "HOST", "PID", "VERSION", "UP", "SEEN", "STATE"
    for worker in status.workers:
        up, seen = _age(status.at, worker.started_at), _age(status.at, worker.seen_at)
        state = state_of(worker, status.at)
        yield worker.kind, worker.host, str(worker.pid), worker.version, up, f"{seen} ago", state


def state_of(worker: WorkerFigures, now: datetime) -> str:
    """Say in a word or some how a worker is."""
    if not worker.is_live:
        return "silent"
    if worker.outage:
        return f"outage ({worker.outage}) for {_age(now, worker.outage_since)}"
    return "stopping" if worker.is_stopping else "working"


def _known(figure: int | None) -> str:
    return "-" if figure is None else f"{figure:,}"


def _age(now: datetime, then: datetime | None) -> str:
    return rough((now - then).total_seconds()) if then else "-"


def _table(rows: Iterator[Sequence[str]]) -> Iterator[str]:
    listed = list(rows)
    widths = [max(map(len, column)) for column in zip(*listed, strict=True)]
    for row in listed:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
