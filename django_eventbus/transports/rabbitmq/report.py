"""What eventbus_topology prints: what there is, what to do, and what remains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django_eventbus.transports.rabbitmq.migration import TopologyPlan
from django_eventbus.transports.rabbitmq.survey import Finding, OldVersion, Survey
from django_eventbus.transports.rabbitmq.topology import Queue


def lines(surveys: Sequence[Survey], plan: TopologyPlan) -> Iterator[str]:
    """Yield the report, for people."""
    for words, finding in _findings(surveys).items():
        yield f"{finding.state:8} {words}{_contents(finding)}"
    for old in _old_versions(surveys):
        gone = "gone" if old.messages is None else f"{old.messages} messages"
        yield (
            f"old      queue {old.name!r} ({gone}, {old.consumers} consumers, {old.in_tiers} in "
            f"tiers, {old.in_dlq} in its DLQ)"
        )
    if plan.steps:
        yield "To do:"
        yield from (f"  {number}. {step}" for number, step in enumerate(plan.steps, 1))
    else:
        yield "Nothing to do."
    if plan.remains:
        yield "Remains:"
        yield from (f"  - {each}" for each in plan.remains)


def as_json(surveys: Sequence[Survey], plan: TopologyPlan) -> dict[str, Any]:
    """Return the report, for programs."""
    return {
        "queues": [
            {"name": each.queue, "version": each.version, "current": each.spec.name}
            for each in surveys
        ],
        "resources": [_row(each) for each in _findings(surveys).values()],
        "old": [
            {
                "name": each.name,
                "messages": each.messages,
                "consumers": each.consumers,
                "in_tiers": each.in_tiers,
                "in_dlq": each.in_dlq,
                "dlq_consumers": each.dlq_consumers,
                "wait": each.wait,
            }
            for each in _old_versions(surveys)
        ],
        "steps": [str(each) for each in plan.steps],
        "remains": list(plan.remains),
    }


def _findings(surveys: Sequence[Survey]) -> dict[str, Finding]:
    return {str(each.resource): each for survey in surveys for each in survey.findings}


def _old_versions(surveys: Sequence[Survey]) -> list[OldVersion]:
    return [old for survey in surveys for old in survey.old]


def _contents(finding: Finding) -> str:
    if not isinstance(finding.resource, Queue) or finding.state == "missing":
        return ""
    return f" ({finding.messages} messages, {finding.consumers} consumers)"


def _row(finding: Finding) -> dict[str, Any]:
    resource = finding.resource
    if isinstance(resource, Queue):
        own = {
            "kind": "queue",
            "arguments": resource.arguments,
            "messages": finding.messages,
            "consumers": finding.consumers,
        }
    else:
        own = {"kind": "exchange", "type": resource.kind}
    return {"name": resource.name, "state": finding.state, **own}
