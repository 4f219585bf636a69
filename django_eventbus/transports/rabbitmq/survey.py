"""Look at what the broker has of what the queues need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from django_eventbus.transports.contract import QueueSpec
from django_eventbus.transports.rabbitmq.declaring import may_compare
from django_eventbus.transports.rabbitmq.inquiry import Inquiry
from django_eventbus.transports.rabbitmq.topology import (
    Bind,
    Exchange,
    Queue,
    dead_letter_queue,
    resources,
    tier,
)
from django_eventbus.transports.rabbitmq.versions import (
    current_version,
    is_wait_over,
    retiring,
    versioned,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that a queue needs: it "exists", is "missing" or "differs"."""

    resource: Exchange | Queue
    state: str
    messages: int = 0
    consumers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OldVersion:
    """What is left of a version that is not current any more."""

    name: str
    #: None where the queue itself is gone.
    messages: int | None
    consumers: int
    in_tiers: int
    in_dlq: int
    dlq_consumers: int
    #: "none" until it was unbound, then "running", and "over" when nobody writes to it any more.
    wait: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What there is of one queue; *spec* is that of its current version."""

    queue: str
    version: int
    spec: QueueSpec
    findings: tuple[Finding, ...]
    old: tuple[OldVersion, ...]


def surveys(inquiry: Inquiry, specs: Sequence[QueueSpec]) -> list[Survey]:
    """Look at everything that *specs* need, and at their old versions."""
    return [_survey(inquiry, spec) for spec in specs]


def _survey(inquiry: Inquiry, spec: QueueSpec) -> Survey:
    version = current_version(inquiry, spec.name)
    spec_now = replace(spec, name=versioned(spec.name, version))
    return Survey(
        queue=spec.name,
        version=version,
        spec=spec_now,
        findings=tuple(_findings(inquiry, spec_now)),
        old=tuple(_old_versions(inquiry, spec, version)),
    )


def _findings(inquiry: Inquiry, spec: QueueSpec) -> Iterator[Finding]:
    for resource in resources(spec):
        if not isinstance(resource, Bind):
            yield _finding(inquiry, resource)


def _finding(inquiry: Inquiry, resource: Exchange | Queue) -> Finding:
    frame = inquiry.found(resource)
    if frame is None:
        return Finding(resource=resource, state="missing")
    state = "differs" if may_compare() and inquiry.differs(resource) else "exists"
    if isinstance(resource, Exchange):
        return Finding(resource=resource, state=state)
    method = frame.method
    return Finding(
        resource=resource,
        state=state,
        messages=method.message_count,
        consumers=method.consumer_count,
    )


def _old_versions(inquiry: Inquiry, spec: QueueSpec, current: int) -> Iterator[OldVersion]:
    for version in range(1, current):
        name = versioned(spec.name, version)
        frame = inquiry.found(Queue(name=name))
        dlq = inquiry.found(Queue(name=dead_letter_queue(name)))
        old = OldVersion(
            name=name,
            messages=frame and frame.method.message_count,
            consumers=frame.method.consumer_count if frame else 0,
            in_tiers=sum(inquiry.count(tier(name, each)) or 0 for each in set(spec.delays)),
            in_dlq=dlq.method.message_count if dlq else 0,
            dlq_consumers=dlq.method.consumer_count if dlq else 0,
            wait=_wait(inquiry, name),
        )
        if frame or dlq:
            yield old


def _wait(inquiry: Inquiry, name: str) -> str:
    if is_wait_over(inquiry, name):
        return "over"
    return "running" if inquiry.count(retiring(name)) else "none"
