"""Say what is wrong with a broker, from the facts. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from django_eventbus.conf import conf
from django_eventbus.findings import Finding, error, unchecked, warning
from django_eventbus.routing import type_of
from django_eventbus.transports.contract import Published
from django_eventbus.transports.rabbitmq.declaring import may_compare
from django_eventbus.transports.rabbitmq.examining import Facts, ResourceFacts
from django_eventbus.transports.rabbitmq.management_api import ManagementFacts
from django_eventbus.transports.rabbitmq.topology import Queue, dead_letter_queue
from django_eventbus.transports.takers import about_handled, about_published

_OLDEST = (3, 10)
#: Seconds that the clocks may differ before times in headers and tables mislead.
_SKEW = 30
#: Fewer deliveries than this and a few restarts of a consumer use them up.
_FEW_DELIVERIES = 20
#: Milliseconds that RabbitMQ waits for an ack unless it is told otherwise.
_CONSUMER_TIMEOUT = 30 * 60 * 1000

Policy = dict[str, Any]


def findings(facts: Facts, published: Sequence[Published]) -> Iterator[Finding]:
    """Yield what is wrong with the broker or could not be looked at."""
    yield from _about_version(facts)
    yield from _about_resources(facts)
    yield from _about_permissions(facts)
    yield from _about_queues(facts)
    if facts.management:
        yield from _about_policies(facts, facts.management)
        yield from _about_bindings(facts, facts.management)
        yield from about_published(published, facts.management.bindings)
        yield from about_handled(facts.specs, facts.management.bindings)
        yield from _about_clocks(facts.management)
    yield from _unchecked(facts)


def version_of(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def _about_version(facts: Facts) -> Iterator[Finding]:
    if facts.product != "RabbitMQ":
        yield warning(
            f"The broker calls itself {facts.product or 'nothing'!r}, not RabbitMQ.",
            "Only RabbitMQ 3.10 and newer is tested; others differ in confirms and dead-lettering.",
        )
    elif version_of(facts.version) < _OLDEST:
        yield error(
            f"RabbitMQ {facts.version} has no time to live on quorum queues, and no "
            "at-least-once dead-lettering.",
            "Upgrade it to 3.10 or newer.",
        )
    if conf.queue_type == "classic":
        yield warning(
            "QUEUE_TYPE is 'classic': such queues are on one node, and dead-letter at most once.",
            "Use 'quorum' where losing a retry with the broker's node matters.",
        )


def _about_resources(facts: Facts) -> Iterator[Finding]:
    is_ours = conf.topology == "declare"
    for each in facts.resources:
        if each.is_missing:
            remedy = "Start consume_events, which declares it" if is_ours else "Have it declared"
            yield error(f"The {each.resource} is missing.", f"{remedy}, or correct NAMES.")
        elif each.difference:
            yield _differing(facts, each)
        elif each.refusal:
            yield _undeclarable(each, is_ours)


def _differing(facts: Facts, each: ResourceFacts) -> Finding:
    what = f"The {each.resource} is not as it should be: {each.difference}."
    if re.search(r"x-delivery-limit'.*current is '-1'", each.difference):
        if version_of(facts.version) < (4,):
            return error(
                f"The {each.resource} has the delivery limit -1, by which RabbitMQ "
                f"{facts.version} discards a message the first time that it is returned.",
                "Declare it with a limit of 2147483647, or without one.",
            )
        return warning(what, "Harmless on RabbitMQ 4; name a number all the same.")
    return error(
        what,
        "Declared arguments cannot be changed: see `manage.py eventbus_topology --plan`, or "
        "delete the queue when it is empty and start consume_events.",
    )


def _undeclarable(each: ResourceFacts, is_ours: bool) -> Finding:
    if is_ours:
        return error(
            f"We may not declare the {each.resource}: {each.refusal}.",
            "Give the user the permissions of docs/how-to/secure-the-broker.md, or set TOPOLOGY "
            "to 'check'.",
        )
    return unchecked(
        f"Whether the {each.resource} has the right arguments: we may not declare it.",
        "Run the doctor as the user that declares the topology.",
    )


def _about_permissions(facts: Facts) -> Iterator[Finding]:
    for name, words in facts.unwritable.items():
        yield error(
            f"We may not publish to {name}: {words}.",
            "Give the user write permission on it; docs/how-to/secure-the-broker.md has the list.",
        )
    for name, words in facts.unreadable.items():
        yield error(
            f"We may not consume from {name}: {words}.",
            "Give the user read permission on it; docs/how-to/secure-the-broker.md has the list.",
        )


def _about_queues(facts: Facts) -> Iterator[Finding]:
    for spec in facts.specs:
        work, dlq = facts.queue(spec.name), facts.queue(dead_letter_queue(spec.name))
        if work and not work.is_missing and not work.consumers:
            yield warning(
                f"Nobody consumes {spec.name}, which holds {work.messages} messages.",
                "Start consume_events.",
            )
        if dlq and dlq.messages:
            yield warning(
                f"{dlq.resource.name} holds {dlq.messages} messages, and "
                f"{dlq.consumers} consumers collect it.",
                "Look at them with peek_dlq; with COLLECT_DLQ on, consume_events turns them into "
                "dead letters.",
            )


def _about_policies(facts: Facts, management: ManagementFacts) -> Iterator[Finding]:
    graves = {dead_letter_queue(spec.name) for spec in facts.specs}
    for each in facts.resources:
        if not isinstance(each.resource, Queue):
            continue
        queue = management.queues.get(each.resource.name)
        policy = queue.policy if queue else {}
        if each.resource.name in graves:
            yield from _policy_of_dlq(each.resource.name, policy)
        else:
            yield from _policy_of_queue(each.resource, policy, version_of(facts.version))
            yield from _policy_of_consumers(each.resource.name, policy)


def _policy_of_dlq(name: str, policy: Policy) -> Iterator[Finding]:
    losing = ("message-ttl", "max-length", "max-length-bytes", "expires", "delivery-limit")
    for key in losing:
        if key in policy:
            yield error(
                f"A policy sets {key} = {policy[key]} on {name}: what is parked there is dropped.",
                f"Except {name} from the policy: a DLQ keeps everything until a person decides.",
            )


def _policy_of_queue(queue: Queue, policy: Policy, version: tuple[int, ...]) -> Iterator[Finding]:
    name = queue.name
    remedy = f"Except {name} from the policy."
    if policy.get("overflow") == "drop-head":
        yield error(
            f"A policy sets overflow = drop-head on {name}: the broker drops messages, and "
            "dead-letters at most once.",
            remedy,
        )
    if "expires" in policy:
        yield error(f"A policy sets expires on {name}: it is deleted with its messages.", remedy)
    own_ttl = queue.arguments.get("x-message-ttl")
    if "message-ttl" in policy and policy["message-ttl"] < (own_ttl or float("inf")):
        ends = "they come back too early" if own_ttl else "they end in the DLQ unhandled"
        yield warning(
            f"A policy sets message-ttl = {policy['message-ttl']} on {name}: after so many "
            f"milliseconds {ends}.",
            remedy,
        )
    for key in ("max-length", "max-length-bytes"):
        if key in policy:
            yield warning(
                f"A policy sets {key} = {policy[key]} on {name}: when it is full, publishing "
                "stops, retries included.",
                remedy,
            )
    limit = policy.get("delivery-limit")
    if limit is not None and limit < _FEW_DELIVERIES:
        is_fatal = limit < 0 and version < (4,)
        make = error if is_fatal else warning
        yield make(
            f"A policy sets delivery-limit = {limit} on {name}: restarts of a consumer use it up.",
            remedy,
        )


def _policy_of_consumers(name: str, policy: Policy) -> Iterator[Finding]:
    timeout = policy.get("consumer-timeout", _CONSUMER_TIMEOUT)
    if timeout < _CONSUMER_TIMEOUT:
        yield warning(
            f"A policy sets consumer-timeout = {timeout} on {name}: handlers that take longer than "
            "so many milliseconds are cut off, and their messages come again.",
            f"Except {name} from the policy, unless all handlers are quick.",
        )


def _about_bindings(facts: Facts, management: ManagementFacts) -> Iterator[Finding]:
    system = {(spec.name, *binding) for spec in facts.specs for binding in spec.system}
    for bind in facts.bindings:
        queue = management.queues.get(bind.queue)
        if queue is None or _is_bound(bind.exchange, bind.key, queue.bindings):
            continue
        if (bind.queue, bind.exchange, bind.key) not in system:
            yield error(
                f"There is no {bind}: what is published there for the queue is lost or returned.",
                "Start consume_events, which binds it, or bind it by hand.",
            )
        elif may_compare():
            yield warning(
                f"There is no {bind}: eventbus_ping does not reach the queue.",
                "Start consume_events, which binds it, or bind it by hand.",
            )


def _is_bound(exchange: str, key: str, bindings: frozenset[tuple[str, str]]) -> bool:
    # A fanout exchange ignores keys, and people bind to it with any.
    is_fanout = exchange in (conf.events_exchange, conf.commands_exchange) and (
        type_of(exchange) == "fanout"
    )
    return (exchange, key) in bindings or (is_fanout and exchange in dict(bindings))


def _about_clocks(management: ManagementFacts) -> Iterator[Finding]:
    if abs(management.skew) > _SKEW:
        yield warning(
            f"The broker's clock is {management.skew:+.0f} s from ours.",
            "Let NTP set both: ages and times in headers mislead until then.",
        )


def _unchecked(facts: Facts) -> Iterator[Finding]:
    if facts.management is None:
        yield unchecked(
            "Policies, bindings (also those of the dead-letter exchanges), types that nobody "
            f"takes, and clocks: {facts.management_problem}.",
            "Set MANAGEMENT_URL to http://user:password@host:15672 of the management plugin.",
        )
    for name in facts.untried:
        yield unchecked(
            f"Whether we may consume from {name}: trying would take one of its messages.",
            "Run the doctor when it is empty, or look at the consumers in the management plugin.",
        )
    if not _sets_consumer_timeouts(facts):
        yield unchecked(
            "The broker's consumer timeout, 30 minutes unless configured: it cuts off handlers "
            "that take longer, and their messages come again.",
            "For longer handlers raise consumer_timeout in rabbitmq.conf.",
        )


def _sets_consumer_timeouts(facts: Facts) -> bool:
    """Whether a policy sets the timeout of every queue, so that the broker's own is of no account."""
    queues = facts.management.queues if facts.management else {}
    found = [queues[spec.name] for spec in facts.specs if spec.name in queues]
    return bool(found) and all("consumer-timeout" in each.policy for each in found)
