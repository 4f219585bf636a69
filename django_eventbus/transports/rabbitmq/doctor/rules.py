"""Rules that turn facts about the broker into problems. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from django_eventbus.conf import conf
from django_eventbus.events.routing import type_of
from django_eventbus.transports.contract import (
    Problem,
    PublishedType,
    error,
    unchecked,
    warning,
)
from django_eventbus.transports.rabbitmq.doctor.facts import Facts, ResourceFacts
from django_eventbus.transports.rabbitmq.management_api import ManagementFacts
from django_eventbus.transports.rabbitmq.parameters import version_of
from django_eventbus.transports.rabbitmq.topology.declare import may_compare
from django_eventbus.transports.rabbitmq.topology.resources import QueueResource, dead_letter_queue
from django_eventbus.transports.routing_checks import doubly_handled, unhandled

_OLDEST = (3, 10)
#: Seconds that the clocks may differ before times in headers and tables mislead.
_SKEW = 30
#: A few restarts of a consumer use up fewer deliveries than this.
_FEW_DELIVERIES = 20
#: Milliseconds that RabbitMQ waits for an ack unless it is configured otherwise.
_CONSUMER_TIMEOUT = 30 * 60 * 1000
_PERMISSIONS = "docs/how-to/secure-the-broker.md has the list"

Policy = dict[str, Any]


def problems(facts: Facts, published: Sequence[PublishedType]) -> Iterator[Problem]:
    """Yield the problems of the broker, and what could not be checked."""
    yield from _version_problems(facts)
    yield from _resource_problems(facts)
    yield from _permission_problems(facts)
    yield from _queue_problems(facts)
    if facts.management:
        yield from _policy_problems(facts, facts.management)
        yield from _binding_problems(facts, facts.management)
        yield from unhandled(published, facts.management.bindings)
        yield from doubly_handled(facts.specs, facts.management.bindings)
        if abs(facts.management.skew) > _SKEW:
            yield warning(
                "clock_skew",
                f"The broker's clock differs from the local clock by {facts.management.skew:+.0f} s.",
                "Synchronize both clocks with NTP. Until then, ages and times in headers are wrong.",
            )
    yield from _unchecked(facts)


def _version_problems(facts: Facts) -> Iterator[Problem]:
    if facts.product != "RabbitMQ":
        yield warning(
            "product",
            f"The broker reports the product {facts.product!r}, not 'RabbitMQ'.",
            "Use RabbitMQ 3.10 or newer: other brokers are not tested, and they differ in confirms "
            "and dead-lettering.",
        )
    elif version_of(facts.version) < _OLDEST:
        yield error(
            "version",
            f"RabbitMQ {facts.version} has no time to live on quorum queues, and no "
            "at-least-once dead-lettering.",
            "Upgrade RabbitMQ to 3.10 or newer.",
        )
    if conf.queue_type == "classic":
        yield warning(
            "classic_queues",
            "QUEUE_TYPE is 'classic': such queues are on one node, and dead-letter at most once.",
            "Use 'quorum' unless a retry may be lost with its node.",
        )


def _resource_problems(facts: Facts) -> Iterator[Problem]:
    is_ours = conf.topology == "declare"
    for each in facts.resources:
        about = {each.kind: each.resource.name}
        if each.is_missing:
            remedy = (
                "Start consume_events, which declares it" if is_ours else "Declare it on the broker"
            )
            text = f"The {each.resource} is missing."
            yield error("missing", text, f"{remedy}, or correct NAMES.", **about)
        elif each.difference:
            yield _difference(facts, each)
        elif each.refusal and is_ours:
            yield error(
                "not_declarable",
                f"The user may not declare the {each.resource}: {each.refusal}.",
                f"Give the user the permissions ({_PERMISSIONS}), or set TOPOLOGY to 'check'.",
                **about,
            )
        elif each.refusal:
            yield unchecked(
                "not_declarable",
                f"The arguments of the {each.resource} were not checked, because the user may not "
                "declare it.",
                "Run the doctor as the user that declares the topology.",
                **about,
            )


def _difference(facts: Facts, each: ResourceFacts) -> Problem:
    about = {each.kind: each.resource.name}
    text = f"The {each.resource} differs from its declaration: {each.difference}."
    if re.search(r"x-delivery-limit'.*current is '-1'", each.difference):
        if version_of(facts.version) < (4,):
            return error(
                "delivery_limit",
                f"The {each.resource} has the delivery limit -1, and RabbitMQ {facts.version} "
                "therefore discards a message when it is returned for the first time.",
                "Declare it with a limit of 2147483647, or without one.",
                **about,
            )
        remedy = "Set a number at the next opportunity: on RabbitMQ 4 a limit of -1 is harmless."
        return warning("delivery_limit", text, remedy, **about)
    return error(
        "differs",
        text,
        "Declared arguments cannot be changed: run `manage.py eventbus_topology --plan`, or "
        "delete the queue when it is empty and start consume_events.",
        **about,
    )


def _permission_problems(facts: Facts) -> Iterator[Problem]:
    for name, message in facts.unwritable.items():
        yield error(
            "not_writable",
            f"The user may not publish to {name}: {message}.",
            f"Give the user write permission on it; {_PERMISSIONS}.",
        )
    for name, message in facts.unreadable.items():
        yield error(
            "not_readable",
            f"The user may not consume from {name}: {message}.",
            f"Give the user read permission on it; {_PERMISSIONS}.",
            queue=name,
        )


def _queue_problems(facts: Facts) -> Iterator[Problem]:
    for spec in facts.specs:
        work, dlq = facts.queue(spec.name), facts.queue(dead_letter_queue(spec.name))
        if work and not work.is_missing and not work.consumers:
            yield warning(
                "unconsumed",
                f"No process consumes {spec.name}, which holds {_counted(work.messages)}.",
                "Start consume_events.",
                queue=spec.name,
            )
        if dlq and dlq.messages:
            collectors = (
                "1 consumer collects"
                if dlq.consumers == 1
                else (f"{dlq.consumers or 'no'} consumers collect")
            )
            yield warning(
                "dlq",
                f"{dlq.resource.name} holds {_counted(dlq.messages)}, and {collectors} it.",
                "Inspect it with eventbus_dlq, or turn COLLECT_DLQ on: consume_events then turns "
                "its messages into dead letters.",
                queue=spec.name,
            )


def _counted(messages: int) -> str:
    return "1 message" if messages == 1 else f"{messages} messages"


def _policy_problems(facts: Facts, management: ManagementFacts) -> Iterator[Problem]:
    dlqs = {dead_letter_queue(spec.name) for spec in facts.specs}
    for each in facts.resources:
        if not isinstance(each.resource, QueueResource):
            continue
        queue = management.queues.get(each.resource.name)
        policy = queue.policy if queue else {}
        if queue and queue.delays_returned_messages:
            yield _delayed_retry(each.resource.name)
        if each.resource.name in dlqs:
            yield from _policy_of_dlq(each.resource.name, policy)
        else:
            yield from _policy_of_queue(each.resource, policy, version_of(facts.version))


def _delayed_retry(name: str) -> Problem:
    return error(
        "policy",
        f"A policy or an argument sets delayed-retry-type on {name}: the broker does not count "
        "returned messages until they are due. consume_events --burst ends before they are "
        "handled, and levels are too low.",
        f"Exclude {name} from the policy: retries have their own tiers.",
        queue=name,
    )


def _policy_of_dlq(name: str, policy: Policy) -> Iterator[Problem]:
    losing = ("message-ttl", "max-length", "max-length-bytes", "expires", "delivery-limit")
    for key in losing:
        if key in policy:
            yield error(
                "policy",
                f"A policy sets {key} = {policy[key]} on {name}: the broker drops parked messages.",
                f"Exclude {name} from the policy: a DLQ keeps everything until a person decides.",
                queue=name,
            )


def _policy_of_queue(
    queue: QueueResource, policy: Policy, version: tuple[int, ...]
) -> Iterator[Problem]:
    name = queue.name
    remedy = f"Exclude {name} from the policy."
    if policy.get("overflow") == "drop-head":
        yield error(
            "policy",
            f"A policy sets overflow = drop-head on {name}: the broker drops messages, and "
            "dead-letters at most once.",
            remedy,
            queue=name,
        )
    if "expires" in policy:
        yield error(
            "policy",
            f"A policy sets expires on {name}: the broker deletes the queue with its messages.",
            remedy,
            queue=name,
        )
    own_ttl = queue.arguments.get("x-message-ttl")
    if "message-ttl" in policy and policy["message-ttl"] < (own_ttl or float("inf")):
        result = "return too early" if own_ttl else "go to the DLQ unhandled"
        yield warning(
            "policy",
            f"A policy sets message-ttl = {policy['message-ttl']} on {name}: after this number of "
            f"milliseconds, messages {result}.",
            remedy,
            queue=name,
        )
    for key in ("max-length", "max-length-bytes"):
        if key in policy:
            yield warning(
                "policy",
                f"A policy sets {key} = {policy[key]} on {name}: when the queue is full, "
                "publishing stops, retries included.",
                remedy,
                queue=name,
            )
    limit = policy.get("delivery-limit")
    if limit is not None and limit < _FEW_DELIVERIES:
        make = error if limit < 0 and version < (4,) else warning
        yield make(
            "policy",
            f"A policy sets delivery-limit = {limit} on {name}: restarts of a consumer use it up.",
            remedy,
            queue=name,
        )
    timeout = policy.get("consumer-timeout", _CONSUMER_TIMEOUT)
    if timeout < _CONSUMER_TIMEOUT:
        yield warning(
            "policy",
            f"A policy sets consumer-timeout = {timeout} on {name}: after this number of "
            "milliseconds, the broker interrupts handlers and delivers their messages again.",
            f"Exclude {name} from the policy, unless all handlers are quick.",
            queue=name,
        )


def _binding_problems(facts: Facts, management: ManagementFacts) -> Iterator[Problem]:
    system = {(spec.name, *binding) for spec in facts.specs for binding in spec.system}
    remedy = "Start consume_events, which binds the queue, or bind it by hand."
    for bind in facts.bindings:
        queue = management.queues.get(bind.queue)
        if queue is None or _is_bound(bind.exchange, bind.key, queue.bindings):
            continue
        if (bind.queue, bind.exchange, bind.key) not in system:
            text = f"There is no {bind}: messages for the queue are lost or returned."
            yield error("unbound", text, remedy, queue=bind.queue)
        elif may_compare():
            text = f"There is no {bind}: eventbus_ping does not reach the queue."
            yield warning("unbound", text, remedy, queue=bind.queue)


def _is_bound(exchange: str, key: str, bindings: frozenset[tuple[str, str]]) -> bool:
    # A fanout exchange ignores keys, so a binding may have any key.
    is_fanout = exchange in (conf.events_exchange, conf.commands_exchange) and (
        type_of(exchange) == "fanout"
    )
    return (exchange, key) in bindings or (is_fanout and exchange in dict(bindings))


def _unchecked(facts: Facts) -> Iterator[Problem]:
    if facts.management is None:
        yield unchecked(
            "management",
            "Policies, bindings (also those of the dead-letter exchanges), unhandled types and "
            f"clocks were not checked: {facts.management_problem}.",
            "Set MANAGEMENT_URL to http://user:password@host:15672 of the management plugin.",
        )
    for name in facts.untried:
        yield unchecked(
            "read_permission",
            f"The permission to consume from {name} was not checked: the check would remove one of "
            "its messages.",
            "Run the doctor when the queue is empty, or check its consumers in the management "
            "plugin.",
            queue=name,
        )
    # A policy on every queue makes the broker's own timeout irrelevant.
    queues = facts.management.queues if facts.management else {}
    policies = [queues[spec.name].policy for spec in facts.specs if spec.name in queues]
    if not policies or not all("consumer-timeout" in each for each in policies):
        yield unchecked(
            "consumer_timeout",
            "The broker's consumer timeout was not checked; it is 30 minutes unless configured. "
            "The broker interrupts handlers that run longer and delivers their messages again.",
            "If handlers run longer, raise consumer_timeout in rabbitmq.conf.",
        )
