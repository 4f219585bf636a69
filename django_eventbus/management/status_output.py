"""The status as text or JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django_eventbus.durations import rough
from django_eventbus.models.monitoring import COUNTED
from django_eventbus.monitoring.problems import number, problems, summary
from django_eventbus.monitoring.status_values import (
    QueueStatus,
    Status,
    ThroughputBucket,
    WorkerStatus,
)


def as_json(status: Status) -> dict[str, Any]:
    """Return the problems and the status, in values that JSON has."""
    found = [each.as_dict() for each in problems(status)]
    return {"problems": found, **_plain(asdict(status))}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.isoformat() if isinstance(value, datetime) else value


def as_text(status: Status) -> Iterator[str]:
    """Yield the lines of a report for people."""
    found = problems(status)
    yield summary(found)
    for problem in found:
        yield f"- {problem.text} {problem.remedy}"
    outbox, letters = status.outbox, status.dead_letters
    lag = f", oldest for {_age(status.at, outbox.oldest_ready_at)}" if outbox.ready else ""
    yield ""
    yield (
        f"Outbox: {number(outbox.ready)} ready{lag}, {number(outbox.scheduled)} scheduled, "
        f"{number(outbox.unroutable)} unroutable, {number(outbox.failed)} failed"
    )
    yield (
        f"Dead letters: {number(letters.open)} open, {number(letters.new_in_hour)} new in the last "
        f"hour, {number(letters.new_in_day)} in the last day, {number(letters.redriving)} re-driving, "
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
        lasted = f"lasted {end}" if end else ("ongoing" if outage.is_lasting else "end unknown")
        yield (
            f"Outage ({outage.kind}) of the {outage.part} on {outage.host}, "
            f"{_age(status.at, outage.began_at)} ago, {lasted}"
        )


def _sums(buckets: Iterable[ThroughputBucket]) -> str:
    listed = list(buckets)
    return ", ".join(f"{sum(getattr(each, name) for each in listed):,} {name}" for name in COUNTED)


def _queue_rows(status: Status) -> Iterator[Sequence[str]]:
    yield "QUEUE", "MESSAGES", "IN TIERS", "IN DLQ", "CONSUMERS", "MEASURED"
    for queue in status.queues:
        counts = (queue.messages, queue.in_tiers, queue.dlq_messages, queue.consumers)
        yield queue.name, *map(_known, counts), _measured(status.at, queue)


def _measured(now: datetime, queue: QueueStatus) -> str:
    age = f"{_age(now, queue.measured_at)} ago" if queue.measured_at else "never"
    return f"{age}: {queue.trouble}" if queue.trouble else age


def _worker_rows(status: Status) -> Iterator[Sequence[str]]:
    yield "WORKER", "HOST", "PID", "VERSION", "UP", "SEEN", "STATE"
    for worker in status.workers:
        up, seen = _age(status.at, worker.started_at), _age(status.at, worker.seen_at)
        state = state_of(worker, status.at)
        yield worker.kind, worker.host, str(worker.pid), worker.version, up, f"{seen} ago", state


def state_of(worker: WorkerStatus, now: datetime) -> str:
    """Return the state of a worker in a few words."""
    if not worker.is_live:
        return "silent"
    if worker.outage:
        return f"outage ({worker.outage}) for {_age(now, worker.outage_since)}"
    return "stopping" if worker.is_stopping else "working"


def _known(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


def _age(now: datetime, then: datetime | None) -> str:
    return rough((now - then).total_seconds()) if then else "-"


def _table(rows: Iterator[Sequence[str]]) -> Iterator[str]:
    listed = list(rows)
    widths = [max(map(len, column)) for column in zip(*listed, strict=True)]
    for row in listed:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
