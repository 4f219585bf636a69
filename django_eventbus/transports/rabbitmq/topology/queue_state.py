"""Read the state of the queues and their resources from the broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from django_eventbus.subscriptions.queue_specs import QueueSpec
from django_eventbus.transports.rabbitmq.topology.client import TopologyClient
from django_eventbus.transports.rabbitmq.topology.declare import may_compare
from django_eventbus.transports.rabbitmq.topology.resources import (
    Bind,
    Exchange,
    QueueResource,
    dead_letter_queue,
    resources,
    tier,
)
from django_eventbus.transports.rabbitmq.topology.versions import (
    current_version,
    is_wait_over,
    retiring,
    versioned,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceState:
    """The state of a resource that a queue needs: "exists", "missing" or "differs"."""

    resource: Exchange | QueueResource
    state: str
    messages: int = 0
    consumers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OldVersion:
    """The remains of a version that is no longer current."""

    name: str
    #: None if the queue itself does not exist any more.
    messages: int | None
    consumers: int
    in_tiers: int
    in_dlq: int
    dlq_consumers: int
    #: Why the counts of the queue and its tiers, and of the DLQ, cannot be trusted; "" if they can.
    uncounted: str = ""
    dlq_uncounted: str = ""
    #: "none" before it is unbound, then "running", and "over" when no process writes to it.
    wait: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """The state of one queue. *spec* is the one of its current version."""

    queue: str
    version: int
    spec: QueueSpec
    states: tuple[ResourceState, ...]
    old: tuple[OldVersion, ...]


def read_queue_states(client: TopologyClient, specs: Sequence[QueueSpec]) -> list[QueueState]:
    """Read the state of everything that *specs* need, and of old versions."""
    return [_queue_state(client, spec) for spec in specs]


def _queue_state(client: TopologyClient, spec: QueueSpec) -> QueueState:
    version = current_version(client, spec.name)
    spec_now = replace(spec, name=versioned(spec.name, version))
    return QueueState(
        queue=spec.name,
        version=version,
        spec=spec_now,
        states=tuple(_states(client, spec_now)),
        old=tuple(_old_versions(client, spec, version)),
    )


def _states(client: TopologyClient, spec: QueueSpec) -> Iterator[ResourceState]:
    for resource in resources(spec):
        if not isinstance(resource, Bind):
            yield _state(client, resource)


def _state(client: TopologyClient, resource: Exchange | QueueResource) -> ResourceState:
    frame = client.found(resource)
    if frame is None:
        return ResourceState(resource=resource, state="missing")
    state = "differs" if may_compare() and client.differs(resource) else "exists"
    if isinstance(resource, Exchange):
        return ResourceState(resource=resource, state=state)
    method = frame.method
    return ResourceState(
        resource=resource,
        state=state,
        messages=method.message_count,
        consumers=method.consumer_count,
    )


def _old_versions(client: TopologyClient, spec: QueueSpec, current: int) -> Iterator[OldVersion]:
    for version in range(1, current):
        name = versioned(spec.name, version)
        frame = client.found(QueueResource(name=name))
        dlq = client.found(QueueResource(name=dead_letter_queue(name)))
        old = OldVersion(
            name=name,
            messages=frame and frame.method.message_count,
            consumers=frame.method.consumer_count if frame else 0,
            in_tiers=sum(client.count(tier(name, each)) or 0 for each in set(spec.delays)),
            in_dlq=dlq.method.message_count if dlq else 0,
            dlq_consumers=dlq.method.consumer_count if dlq else 0,
            wait=_wait(client, name),
        )
        if frame or dlq:
            queues = [name, *(tier(name, each) for each in sorted(set(spec.delays) - {0.0}))]
            yield replace(
                old,
                uncounted=_uncounted(client, queues if frame else []),
                dlq_uncounted=_uncounted(client, [dead_letter_queue(name)] if dlq else []),
            )


def _uncounted(client: TopologyClient, queues: Sequence[str]) -> str:
    existing = (each for each in queues if client.count(each) is not None)
    return next(filter(None, map(client.counting_problem, existing)), "")


def _wait(client: TopologyClient, name: str) -> str:
    if is_wait_over(client, name):
        return "over"
    return "running" if client.count(retiring(name)) else "none"
