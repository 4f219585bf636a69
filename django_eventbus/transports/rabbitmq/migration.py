"""From what the broker has to what the queues need: decide on steps, and take them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from django_eventbus.exceptions import BrokerRefused
from django_eventbus.transports.contract import QueueSpec
from django_eventbus.transports.rabbitmq import versions
from django_eventbus.transports.rabbitmq.inquiry import Differs, Inquiry
from django_eventbus.transports.rabbitmq.survey import Finding, OldVersion, Survey
from django_eventbus.transports.rabbitmq.topology import (
    Bind,
    Exchange,
    Queue,
    Resource,
    dead_letter_exchange,
    dead_letter_queue,
    resources,
    tier,
)
from django_eventbus.transports.rabbitmq.versions import has_versions, retired, retiring, versioned


@dataclass(frozen=True, slots=True)
class Make:
    """Declare or bind something."""

    resource: Resource

    def __str__(self) -> str:
        return f"make the {self.resource}"

    def take(self, inquiry: Inquiry) -> None:
        inquiry.make(self.resource)


@dataclass(frozen=True, slots=True)
class Unbind:
    """Let an old version get no more events."""

    bind: Bind

    def __str__(self) -> str:
        return f"undo the {self.bind}"

    def take(self, inquiry: Inquiry) -> None:
        inquiry.unbind(self.bind)


@dataclass(frozen=True, slots=True)
class Wait:
    """Start the wait after which nobody writes to an old version any more."""

    queue: str
    milliseconds: int

    def __str__(self) -> str:
        return f"start the wait of {self.milliseconds / 1000:g} s for {self.queue!r}"

    def take(self, inquiry: Inquiry) -> None:
        # The broker keeps the time: the message moves on when the wait is over.
        classic = {"x-queue-type": "classic"}
        on = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": retired(self.queue)}
        timer = {**classic, "x-message-ttl": self.milliseconds, **on}
        inquiry.make(Queue(name=retired(self.queue), arguments=classic))
        try:
            inquiry.make(Queue(name=retiring(self.queue), arguments=timer))
        except Differs:
            inquiry.delete(Queue(name=retiring(self.queue)))
            inquiry.make(Queue(name=retiring(self.queue), arguments=timer))
        inquiry.put(retiring(self.queue))


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete what is left of an old version."""

    resource: Exchange | Queue
    is_marker: bool = False

    def __str__(self) -> str:
        return f"delete the {self.resource}"

    def take(self, inquiry: Inquiry) -> None:
        # Quorum queues refuse conditional deletes: look once more, at the last moment.
        if isinstance(self.resource, Queue) and not self.is_marker:
            frame = inquiry.found(self.resource)
            if frame and (frame.method.message_count or frame.method.consumer_count):
                raise BrokerRefused(f"The {self.resource} is in use again: run this again later.")
        inquiry.delete(self.resource)


Step = Make | Unbind | Wait | Delete


@dataclass(frozen=True, slots=True)
class TopologyPlan:
    """What to do now, and what remains for a person or for later."""

    steps: tuple[Step, ...]
    remains: tuple[str, ...]

    def carry_out(self, inquiry: Inquiry, surveys: Sequence[Survey]) -> None:
        for step in self.steps:
            step.take(inquiry)
        # AMQP cannot ask for bindings; making them again changes nothing.
        for survey in surveys:
            if not _moves(survey):
                for bind in _binds(survey.spec):
                    inquiry.make(bind)


def plan_of(surveys: Sequence[Survey]) -> TopologyPlan:
    """Decide, without a look at the broker."""
    decided = [each for survey in surveys for each in _decisions(survey)]
    steps = dict.fromkeys(str(each) for each in decided if not isinstance(each, str))
    by_words = {str(each): each for each in decided if not isinstance(each, str)}
    remains = dict.fromkeys(each for each in decided if isinstance(each, str))
    return TopologyPlan(tuple(by_words[words] for words in steps), tuple(remains))


def _decisions(survey: Survey) -> Iterator[Step | str]:
    yield from _shared(survey)
    if _moves(survey):
        yield from _move(survey)
    else:
        yield from _complete(survey)
    for old in survey.old:
        yield from _retire(old, survey.spec)


def _differing(survey: Survey) -> list[Finding]:
    shared = {exchange for exchange, _ in survey.spec.bindings}
    differing = (each for each in survey.findings if each.state == "differs")
    return [each for each in differing if each.resource.name not in shared]


def _moves(survey: Survey) -> bool:
    return bool(_differing(survey)) and has_versions()


def _shared(survey: Survey) -> Iterator[str]:
    own = _differing(survey)
    for finding in survey.findings:
        if finding.state == "differs" and finding not in own:
            yield (
                f"The {finding.resource} is not of the type that EXCHANGE_TYPES says; others use "
                "it too, so it is not changed from here."
            )
    if own and not has_versions():
        for finding in own:
            yield (
                f"The {finding.resource} differs, and NAMES leaves no room for another one beside "
                "it: change it by hand."
            )


def _complete(survey: Survey) -> Iterator[Step]:
    missing = [each.resource for each in survey.findings if each.state == "missing"]
    yield from map(Make, missing)
    if missing:
        yield from map(Make, _binds(survey.spec))


def _binds(spec: QueueSpec) -> list[Bind]:
    return [each for each in resources(spec) if isinstance(each, Bind)]


def _move(survey: Survey) -> Iterator[Step | str]:
    """Yield the way to the next version: what is new first, so that no event falls between."""
    shared = {exchange for exchange, _ in survey.spec.bindings}
    new = replace(survey.spec, name=versioned(survey.queue, survey.version + 1))
    for resource in resources(new):
        if not (isinstance(resource, Exchange) and resource.name in shared):
            yield Make(resource)
    yield from _leave(survey.spec.name, survey.spec)
    yield (
        f"{survey.spec.name!r} goes on being consumed by processes that start from now on; "
        "a later --apply deletes it."
    )


def _leave(old: str, spec: QueueSpec) -> Iterator[Step]:
    for exchange, key in spec.bindings:
        yield Unbind(Bind(queue=old, exchange=exchange, key=key))
    # The longest tier, and twice what a process may take to notice the new version.
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
        yield f"{name!r} holds {old.in_dlq} messages: collect or re-drive them; it is deleted then."
    elif old.dlq_consumers:
        yield f"{name!r} has {old.dlq_consumers} consumers: restart consume_events, which lets go."
    else:
        yield Delete(Queue(name=name))
        yield Delete(Exchange(name=dead_letter_exchange(old.name), kind=""))


def _retire_queue(old: OldVersion, spec: QueueSpec) -> Iterator[Step | str]:
    if old.wait == "none":
        yield from _leave(old.name, spec)
    elif old.wait == "running":
        yield f"{old.name!r} is deleted when nobody can be writing to it any more: wait a while."
    elif old.messages or old.in_tiers:
        held = f"{old.messages} messages and {old.in_tiers} in its tiers"
        yield f"{old.name!r} still holds {held}: have them consumed."
    elif old.consumers:
        yield f"{old.name!r} has {old.consumers} consumers: restart consume_events, which lets go."
    else:
        for delay in sorted(set(spec.delays) - {0.0}):
            yield Delete(Queue(name=tier(old.name, delay)))
        yield Delete(Queue(name=old.name))
        yield Delete(Queue(name=retiring(old.name)), is_marker=True)
        yield Delete(Queue(name=retired(old.name)), is_marker=True)
        yield from _retire_dlq(old)
