"""The topology as a Mermaid diagram and as definitions for the broker. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django_eventbus.transports.contract import QueueSpec
from django_eventbus.transports.rabbitmq.topology import (
    Bind,
    Exchange,
    Queue,
    Resource,
    resources,
)


def needed(specs: Sequence[QueueSpec]) -> list[Resource]:
    """Return what all of *specs* need, each thing once."""
    return list({str(each): each for spec in specs for each in resources(spec)}.values())


def definitions(specs: Sequence[QueueSpec], virtual_host: str) -> dict[str, Any]:
    """Return what `rabbitmqctl import_definitions` takes."""
    host = {"vhost": virtual_host}
    lasting = {**host, "durable": True, "auto_delete": False}
    everything = needed(specs)
    return {
        "exchanges": [
            {"name": each.name, **lasting, "type": each.kind, "internal": False, "arguments": {}}
            for each in everything
            if isinstance(each, Exchange)
        ],
        "queues": [
            {"name": each.name, **lasting, "arguments": each.arguments}
            for each in everything
            if isinstance(each, Queue)
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
            for each in everything
            if isinstance(each, Bind)
        ],
    }


def diagram(specs: Sequence[QueueSpec]) -> str:
    """Return a Mermaid flowchart: solid arrows are bindings, dotted ones dead-lettering."""
    return "\n".join(["flowchart LR", *(f"    {line}" for line in _lines(needed(specs)))])


def _lines(everything: Sequence[Resource]) -> Iterator[str]:
    # Names hold characters that mean something to Mermaid, so each thing gets a number.
    names = [str(each) for each in everything if not isinstance(each, Bind)]
    numbers = {name: f"n{number}" for number, name in enumerate(names)}
    for each in everything:
        match each:
            case Exchange(name=name, kind=kind):
                yield f'{numbers[str(each)]}{{{{"{name}<br/>{kind} exchange"}}}}'
            case Queue(name=name):
                yield f'{numbers[str(each)]}[("{name}")]'
    for each in everything:
        yield from _arrows(each, numbers)


def _arrows(each: Resource, numbers: dict[str, str]) -> Iterator[str]:
    match each:
        case Bind(queue=queue, exchange=exchange, key=key):
            source = numbers[str(Exchange(name=exchange, kind=""))]
            yield f'{source} -->|"{key or "all"}"| {numbers[str(Queue(name=queue))]}'
        case Queue(arguments={"x-dead-letter-exchange": exchange, **rest}):
            key = rest.get("x-dead-letter-routing-key", "")
            delay = rest.get("x-message-ttl")
            words = f"after {delay} ms" if delay else "given up"
            target = Exchange(name=exchange, kind="") if exchange else Queue(name=key)
            if str(target) in numbers:
                yield f'{numbers[str(each)]} -.->|"{words}"| {numbers[str(target)]}'
