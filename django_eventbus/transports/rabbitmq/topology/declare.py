"""Declare the topology, or check that it exists, as TOPOLOGY says."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from django_eventbus.conf import conf
from django_eventbus.exceptions import BrokerRefused, BrokerUnavailable
from django_eventbus.subscriptions.queue_specs import QueueSpec
from django_eventbus.transports.rabbitmq.topology.client import (
    Differs,
    NotPermitted,
    TopologyClient,
)
from django_eventbus.transports.rabbitmq.topology.resources import (
    Bind,
    Exchange,
    QueueResource,
    Resource,
    resources,
)
from django_eventbus.transports.rabbitmq.topology.versions import current_version, versioned

logger = logging.getLogger("django_eventbus.transports.rabbitmq")


def establish(client: TopologyClient, specs: Sequence[QueueSpec]) -> None:
    """Declare or check the topology at the start. Raise BrokerRefused if it cannot be used."""
    match conf.topology:
        case "declare":
            declare(client, specs)
        case "check":
            check(client, specs)


def restore(client: TopologyClient, specs: Sequence[QueueSpec]) -> None:
    """Declare the topology again, because a part of it may have been deleted."""
    # If others declare the topology, they must restore it; it was checked at the start.
    if conf.topology == "declare":
        try:
            declare(client, specs)
        except Differs as difference:
            # A newer release has changed it. The existing queues can still be consumed.
            logger.warning("The topology was not declared again: %s", difference)


def declare(client: TopologyClient, specs: Sequence[QueueSpec]) -> None:
    """Declare everything that *specs* need. Raise BrokerRefused if the broker refuses it."""
    for spec in specs:
        needed = list(resources(current(client, spec)))
        try:
            _make(client, needed)
        except BrokerUnavailable:
            # Another client may have deleted a resource between two steps. If the connection is
            # lost, this fails again at once.
            _make(client, needed)


def _make(client: TopologyClient, needed: Sequence[Resource]) -> None:
    for resource in needed:
        client.make(resource)


def current(client: TopologyClient, spec: QueueSpec) -> QueueSpec:
    """Return *spec* for the version of its queue that is current on the broker."""
    return replace(spec, name=versioned(spec.name, current_version(client, spec.name)))


def check(client: TopologyClient, specs: Sequence[QueueSpec]) -> None:
    """Raise BrokerRefused if a resource is missing or differs; declare nothing."""
    needed = {str(each): each for spec in specs for each in resources(current(client, spec))}
    for resource in needed.values():
        # AMQP has no request that checks a binding.
        if not isinstance(resource, Bind):
            _raise_if_missing(client, resource)


def may_compare() -> bool:
    """Whether to compare arguments, which requires a declaration of existing resources."""
    # With custom NAMES and TOPOLOGY "check", others decide about the arguments.
    is_named_by_us = not conf.given.get("NAMES")
    return conf.topology == "declare" or (conf.topology == "check" and is_named_by_us)


def _raise_if_missing(client: TopologyClient, resource: Exchange | QueueResource) -> None:
    try:
        is_there = client.exists(resource)
    except NotPermitted:
        # A consumer needs no right on the exchange of the events. What it needs fails when used.
        return
    if not is_there:
        raise BrokerRefused(
            f"The {resource} is missing on the broker, and TOPOLOGY is 'check'. Declare it on the "
            "broker, or correct NAMES."
        )
    if may_compare() and client.differs(resource):
        raise Differs(resource)
