"""Print the topology: as text, as a diagram, and as a comparison with the broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django_eventbus.subscriptions.queue_specs import QueueSpec
from django_eventbus.transports.rabbitmq.topology.migration import TopologyPlan, counted
from django_eventbus.transports.rabbitmq.topology.queue_state import (
    OldVersion,
    QueueState,
    ResourceState,
)
from django_eventbus.transports.rabbitmq.topology.resources import (
    Bind,
    Exchange,
    QueueResource,
    Resource,
    resources,
)


def all_resources(specs: Sequence[QueueSpec]) -> list[Resource]:
    """Return the resources of all *specs*, each once."""
    return list({str(each): each for spec in specs for each in resources(spec)}.values())


def definitions(specs: Sequence[QueueSpec], virtual_host: str) -> dict[str, Any]:
    """Return the definitions for `rabbitmqctl import_definitions`."""
    host = {"vhost": virtual_host}
    lasting = {**host, "durable": True, "auto_delete": False}
    found = all_resources(specs)
    return {
        "exchanges": [
            {"name": each.name, **lasting, "type": each.kind, "internal": False, "arguments": {}}
            for each in found
            if isinstance(each, Exchange)
        ],
        "queues": [
            {"name": each.name, **lasting, "arguments": each.arguments}
            for each in found
            if isinstance(each, QueueResource)
        ],
        "bindings": [
            {
                "source": each.exchange,
                **host,
                "destination": each.queue,
                "destination_type": "queue",
                "routing_key": each.key,
                "arguments": {},
            }
            for each in found
            if isinstance(each, Bind)
        ],
    }


def diagram(specs: Sequence[QueueSpec]) -> str:
    """Return a Mermaid flowchart: solid arrows are bindings, dotted ones dead-lettering."""
    return "\n".join(["flowchart LR", *(f"    {line}" for line in _lines(all_resources(specs)))])


def _lines(found: Sequence[Resource]) -> Iterator[str]:
    # Names contain characters with a meaning in Mermaid, so each resource gets a number.
    names = [str(each) for each in found if not isinstance(each, Bind)]
    numbers = {name: f"n{number}" for number, name in enumerate(names)}
    for each in found:
        match each:
            case Exchange(name=name, kind=kind):
                yield f'{numbers[str(each)]}{{{{"{name}<br/>{kind} exchange"}}}}'
            case QueueResource(name=name):
                yield f'{numbers[str(each)]}[("{name}")]'
    for each in found:
        yield from _arrows(each, numbers)


def _arrows(each: Resource, numbers: dict[str, str]) -> Iterator[str]:
    match each:
        case Bind(queue=queue, exchange=exchange, key=key):
            source = numbers[str(Exchange(name=exchange, kind=""))]
            yield f'{source} -->|"{key or "all"}"| {numbers[str(QueueResource(name=queue))]}'
        case QueueResource(arguments={"x-dead-letter-exchange": exchange, **rest}):
            key = rest.get("x-dead-letter-routing-key", "")
            delay = rest.get("x-message-ttl")
            words = f"after {delay} ms" if delay else "dead-lettered"
            target = Exchange(name=exchange, kind="") if exchange else QueueResource(name=key)
            if str(target) in numbers:
                yield f'{numbers[str(each)]} -.->|"{words}"| {numbers[str(target)]}'


def as_text(read_queue_states: Sequence[QueueState], plan: TopologyPlan) -> Iterator[str]:
    """Yield the lines of a report for people."""
    for words, found in _states(read_queue_states).items():
        yield f"{found.state:8} {words}{_contents(found)}"
    for old in _old_versions(read_queue_states):
        messages = "deleted" if old.messages is None else counted(old.messages, "message")
        yield (
            f"old      queue {old.name!r} ({messages}, {counted(old.consumers, 'consumer')}, "
            f"{old.in_tiers} in tiers, {old.in_dlq} in its DLQ)"
        )
    if plan.steps:
        yield "Steps:"
        yield from (f"  {number}. {step}" for number, step in enumerate(plan.steps, 1))
    else:
        yield "There is nothing to do."
    if plan.remains:
        yield "Later:"
        yield from (f"  - {each}" for each in plan.remains)


def as_json(read_queue_states: Sequence[QueueState], plan: TopologyPlan) -> dict[str, Any]:
    """Return the report for programs."""
    return {
        "queues": [
            {"name": each.queue, "version": each.version, "current": each.spec.name}
            for each in read_queue_states
        ],
        "resources": [_row(each) for each in _states(read_queue_states).values()],
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
            for each in _old_versions(read_queue_states)
        ],
        "steps": [str(each) for each in plan.steps],
        "remains": list(plan.remains),
    }


def _states(read_queue_states: Sequence[QueueState]) -> dict[str, ResourceState]:
    return {
        str(each.resource): each for queue_state in read_queue_states for each in queue_state.states
    }


def _old_versions(read_queue_states: Sequence[QueueState]) -> list[OldVersion]:
    return [old for queue_state in read_queue_states for old in queue_state.old]


def _contents(found: ResourceState) -> str:
    if not isinstance(found.resource, QueueResource) or found.state == "missing":
        return ""
    return f" ({counted(found.messages, 'message')}, {counted(found.consumers, 'consumer')})"


def _row(found: ResourceState) -> dict[str, Any]:
    resource = found.resource
    if isinstance(resource, QueueResource):
        own = {
            "kind": "queue",
            "arguments": resource.arguments,
            "messages": found.messages,
            "consumers": found.consumers,
        }
    else:
        own = {"kind": "exchange", "type": resource.kind}
    return {"name": resource.name, "state": found.state, **own}
