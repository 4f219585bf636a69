"""Decide on the steps that change the broker's topology to the needed one, and run them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from django_eventbus.exceptions import BrokerRefused
from django_eventbus.subscriptions.queue_specs import QueueSpec
from django_eventbus.transports.rabbitmq.topology import versions
from django_eventbus.transports.rabbitmq.topology.client import Differs, TopologyClient
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
    dead_letter_exchange,
    dead_letter_queue,
    resources,
    tier,
)
from django_eventbus.transports.rabbitmq.topology.versions import (
    has_versions,
    retired,
    retiring,
    versioned,
)


@dataclass(frozen=True, slots=True)
class Make:
    """Declare or bind something."""

    resource: Resource

    def __str__(self) -> str:
        return f"declare the {self.resource}"

    def run(self, client: TopologyClient) -> None:
        client.make(self.resource)


@dataclass(frozen=True, slots=True)
class Unbind:
    """Remove a binding, so that an old version receives no more events."""

    bind: Bind

    def __str__(self) -> str:
        return f"remove the {self.bind}"

    def run(self, client: TopologyClient) -> None:
        client.unbind(self.bind)


@dataclass(frozen=True, slots=True)
class Wait:
    """Start a wait, after which no process writes to an old version any more."""

    queue: str
    milliseconds: int

    def __str__(self) -> str:
        return f"start a wait of {self.milliseconds / 1000:g} s before {self.queue!r} is deleted"

    def run(self, client: TopologyClient) -> None:
        # The broker measures the time: a message expires and moves on when the wait is over.
        classic = {"x-queue-type": "classic"}
        on = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": retired(self.queue)}
        timer = {**classic, "x-message-ttl": self.milliseconds, **on}
        client.make(QueueResource(name=retired(self.queue), arguments=classic))
        try:
            client.make(QueueResource(name=retiring(self.queue), arguments=timer))
        except Differs:
            client.delete(QueueResource(name=retiring(self.queue)))
            client.make(QueueResource(name=retiring(self.queue), arguments=timer))
        client.put(retiring(self.queue))


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a resource of an old version."""

    resource: Exchange | QueueResource
    is_marker: bool = False

    def __str__(self) -> str:
        return f"delete the {self.resource}"

    def run(self, client: TopologyClient) -> None:
        # Quorum queues do not support conditional deletes, so check again at the last moment.
        if isinstance(self.resource, QueueResource) and not self.is_marker:
            frame = client.found(self.resource)
            if frame and (frame.method.message_count or frame.method.consumer_count):
                raise BrokerRefused(
                    f"The {self.resource} is in use again. Run the command again later."
                )
            if frame and (problem := client.counting_problem(self.resource.name)):
                raise BrokerRefused(problem)
        client.delete(self.resource)


Step = Make | Unbind | Wait | Delete


@dataclass(frozen=True, slots=True)
class TopologyPlan:
    """The steps to run now, and sentences about what remains for a person or for later."""

    steps: tuple[Step, ...]
    remains: tuple[str, ...]

    def run(self, client: TopologyClient, read_queue_states: Sequence[QueueState]) -> None:
        for step in self.steps:
            step.run(client)
        # AMQP cannot check bindings. Declaring them again has no effect.
        for queue_state in read_queue_states:
            if not _moves(queue_state):
                for bind in _binds(queue_state.spec):
                    client.make(bind)


def plan_of(read_queue_states: Sequence[QueueState]) -> TopologyPlan:
    """Decide on the steps, without requests to the broker."""
    decided = [each for queue_state in read_queue_states for each in _decisions(queue_state)]
    steps = dict.fromkeys(str(each) for each in decided if not isinstance(each, str))
    by_words = {str(each): each for each in decided if not isinstance(each, str)}
    remains = dict.fromkeys(each for each in decided if isinstance(each, str))
    return TopologyPlan(tuple(by_words[words] for words in steps), tuple(remains))


def _decisions(queue_state: QueueState) -> Iterator[Step | str]:
    yield from _shared(queue_state)
    if _moves(queue_state):
        yield from _move(queue_state)
    else:
        yield from _complete(queue_state)
    for old in queue_state.old:
        yield from _retire(old, queue_state.spec)


def _differing(queue_state: QueueState) -> list[ResourceState]:
    shared = {exchange for exchange, _ in queue_state.spec.bindings}
    differing = (each for each in queue_state.states if each.state == "differs")
    return [each for each in differing if each.resource.name not in shared]


def _moves(queue_state: QueueState) -> bool:
    return bool(_differing(queue_state)) and has_versions()


def _shared(queue_state: QueueState) -> Iterator[str]:
    own = _differing(queue_state)
    for each in queue_state.states:
        if each.state == "differs" and each not in own:
            yield (
                f"The {each.resource} does not have the type in EXCHANGE_TYPES. Other services use "
                "it too, so this command does not change it."
            )
    if own and not has_versions():
        for each in own:
            yield (
                f"The {each.resource} differs, and NAMES does not allow a second version of it. "
                "Change it by hand."
            )


def _complete(queue_state: QueueState) -> Iterator[Step]:
    missing = [each.resource for each in queue_state.states if each.state == "missing"]
    yield from map(Make, missing)
    if missing:
        yield from map(Make, _binds(queue_state.spec))


def _binds(spec: QueueSpec) -> list[Bind]:
    return [each for each in resources(spec) if isinstance(each, Bind)]


def _move(queue_state: QueueState) -> Iterator[Step | str]:
    """Yield the steps to the next version. New bindings come first, so that no event is lost."""
    shared = {exchange for exchange, _ in queue_state.spec.bindings}
    new = replace(queue_state.spec, name=versioned(queue_state.queue, queue_state.version + 1))
    for resource in resources(new):
        if not (isinstance(resource, Exchange) and resource.name in shared):
            yield Make(resource)
    yield from _leave(queue_state.spec.name, queue_state.spec)
    yield (
        f"{queue_state.spec.name!r} is still consumed by processes that start from now on. "
        "A later --apply deletes it."
    )


def _leave(old: str, spec: QueueSpec) -> Iterator[Step]:
    for exchange, key in spec.bindings:
        yield Unbind(Bind(queue=old, exchange=exchange, key=key))
    # The longest tier, and twice the time after which a process notices the new version.
    longest = max(spec.delays, default=0.0) + 2 * versions.LOOK_AGAIN_AFTER
    yield Wait(old, round(longest * 1000))


def _retire(old: OldVersion, spec: QueueSpec) -> Iterator[Step | str]:
    if old.messages is not None:
        yield from _retire_queue(old, spec)
    else:
        yield from _retire_dlq(old)


def _retire_dlq(old: OldVersion) -> Iterator[Step | str]:
    name = dead_letter_queue(old.name)
    if old.in_dlq:
        held = counted(old.in_dlq, "message")
        yield f"{name!r} holds {held}. Collect or re-drive its messages; a later --apply deletes it."
    elif old.dlq_consumers:
        yield _still_consumed(name, old.dlq_consumers)
    elif old.dlq_uncounted:
        yield old.dlq_uncounted
    else:
        yield Delete(QueueResource(name=name))
        yield Delete(Exchange(name=dead_letter_exchange(old.name), kind=""))


def _still_consumed(queue: str, consumers: int) -> str:
    return f"{queue!r} has {counted(consumers, 'consumer')}. Restart consume_events."


def counted(count: int, noun: str) -> str:
    """Return the count with its noun in the singular or plural."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _retire_queue(old: OldVersion, spec: QueueSpec) -> Iterator[Step | str]:
    if old.wait == "none":
        yield from _leave(old.name, spec)
    elif old.wait == "running":
        yield (
            f"{old.name!r} is deleted when no process can write to it any more. "
            "Wait and run the command again."
        )
    elif old.messages or old.in_tiers:
        held = f"{counted(old.messages or 0, 'message')}, and {old.in_tiers} in its tiers"
        yield f"{old.name!r} still holds {held}. Run consume_events to handle its messages."
    elif old.consumers:
        yield _still_consumed(old.name, old.consumers)
    elif old.uncounted:
        yield old.uncounted
    else:
        for delay in sorted(set(spec.delays) - {0.0}):
            yield Delete(QueueResource(name=tier(old.name, delay)))
        yield Delete(QueueResource(name=old.name))
        yield Delete(QueueResource(name=retiring(old.name)), is_marker=True)
        yield Delete(QueueResource(name=retired(old.name)), is_marker=True)
        yield from _retire_dlq(old)
