"""Diagnose the outboxes, the handlers and the broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from django.db import DEFAULT_DB_ALIAS, Error, connections
from django.db.models import Max
from django.utils import timezone, translation

from django_eventbus.durations import label
from django_eventbus.events.event import Command, Event, event_classes
from django_eventbus.events.routing import COMMANDS, EVENTS, exchange_of
from django_eventbus.models import Attempt, OutboxEvent, Worker
from django_eventbus.monitoring.problems import outbox_problems
from django_eventbus.monitoring.status import read_outbox
from django_eventbus.outages import proven
from django_eventbus.subscriptions.queue_specs import QueueSpec
from django_eventbus.subscriptions.subscription import registry
from django_eventbus.transports.contract import Problem, PublishedType, Transport, warning

#: RabbitMQ waits 30 minutes for the ack of a message before it delivers the message again.
_LONG_HANDLER = 25 * 60
#: The published types are read from this many of the latest rows.
_RECENT = 10_000
_SEVERITIES = ("error", "warning", "unchecked")


def diagnose(transport: Transport, queues: Sequence[QueueSpec]) -> list[Problem]:
    """Return all problems and everything that could not be checked, the most severe first."""
    found: list[Problem] = []
    published = {_published_type(each) for each in event_classes(Event) if each.event_type}
    # In English like the rest of the report, whatever LANGUAGE_CODE is.
    with translation.override(None):
        for using in registry.databases():
            with proven(using):
                found += [*_outbox_problems(using), *_long_handlers(using)]
                published |= _recent_types(using)
        for using in _other_outboxes():
            found += _outbox_problems(using)
    found += transport.diagnose(queues, sorted(published))
    return sorted(found, key=lambda problem: _SEVERITIES.index(problem.severity))


def _other_outboxes() -> Iterator[str]:
    """Yield the databases that have an outbox although no subscription uses them."""
    for using in set(connections) - set(registry.databases()):
        try:
            tables = connections[using].introspection.table_names()
        except Error:
            # The bus may have nothing to do with this database.
            continue
        if OutboxEvent._meta.db_table in tables:
            yield using


def _published_type(event_class: type[Event]) -> PublishedType:
    route = COMMANDS if issubclass(event_class, Command) else EVENTS
    name = event_class.event_type
    return PublishedType(
        type=name,
        exchange=exchange_of(route, name),
        routing_key=route.routing_key_of(name, event_class.event_version),
    )


def _recent_types(using: str) -> set[PublishedType]:
    rows = OutboxEvent.objects.using(using).filter(queue="").order_by("-id")
    recent = rows.values("type", "exchange", "routing_key")[:_RECENT]
    return {PublishedType(**each) for each in recent}


def _outbox_problems(using: str) -> Iterator[Problem]:
    now = timezone.now()
    has_relay = Worker.objects.using(DEFAULT_DB_ALIAS).relays(now).exists()
    for each in outbox_problems(read_outbox(using), now, has_relay=has_relay):
        remedy = each.remedy
        if each.code == "lag" and using not in registry.databases():
            remedy = (
                f"Start relay_events --database {using}: no subscription uses this database, so "
                "consume_events --with-relay does not relay its events."
            )
        yield replace(
            each,
            text=f"Database {using!r}: {each.text}",
            remedy=remedy,
            about={**each.about, "database": using},
        )


def _long_handlers(using: str) -> Iterator[Problem]:
    attempts = Attempt.objects.using(using).filter(duration__gt=_LONG_HANDLER)
    for name, longest in attempts.values_list("subscription").annotate(Max("duration")):
        yield warning(
            "long_handler",
            f"An attempt of {name} took {label(round(longest))}; RabbitMQ delivers a message to "
            "another consumer after 30 minutes, unless it is configured otherwise.",
            "Raise consumer_timeout in rabbitmq.conf, or let the handler do less at a time.",
            subscription=name,
        )
