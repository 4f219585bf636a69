"""Examine the whole bus of this project: its outbox, its handlers, its broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from django.db import Error, connections
from django.db.models import Count, Max, Min
from django.utils import timezone

from django_eventbus.durations import label
from django_eventbus.events import Command, Event, event_classes
from django_eventbus.findings import Finding, warning
from django_eventbus.models import Attempt, OutboxEvent
from django_eventbus.outages import proven
from django_eventbus.routing import COMMANDS, EVENTS, exchange_of
from django_eventbus.subscriptions import registry
from django_eventbus.transports.contract import Published, QueueSpec, Transport

#: A relay that works sends a row within seconds.
_UNSENT = timedelta(minutes=1)
#: What RabbitMQ gives a consumer before it takes the message away is 30 minutes.
_LONG_HANDLER = 25 * 60
#: How many of the latest rows tell which types are published.
_RECENT = 10_000


def examine(transport: Transport, queues: Sequence[QueueSpec]) -> list[Finding]:
    """Return everything that is wrong or could not be looked at, the worst first."""
    found: list[Finding] = []
    published = {_publication(each) for each in event_classes(Event) if each.event_type}
    for using in registry.databases():
        with proven(using):
            found += [*_about_outbox(using), *_about_handlers(using)]
            published |= _published(using)
    for using in _other_outboxes():
        found += _about_outbox(using)
    found += transport.examine(queues, sorted(published))
    order = ("error", "warning", "unchecked")
    return sorted(found, key=lambda finding: order.index(finding.severity))


def _other_outboxes() -> Iterator[str]:
    """Yield the databases that hold an outbox though no subscription uses them."""
    for using in set(connections) - set(registry.databases()):
        try:
            tables = connections[using].introspection.table_names()
        except Error:
            # It need not be a database that the bus has to do with.
            continue
        if OutboxEvent._meta.db_table in tables:
            yield using


def _publication(event_class: type[Event]) -> Published:
    route = COMMANDS if issubclass(event_class, Command) else EVENTS
    name = event_class.event_type
    return Published(
        type=name,
        exchange=exchange_of(route, name),
        routing_key=route.routing_key_of(name, event_class.event_version),
    )


def _published(using: str) -> set[Published]:
    rows = OutboxEvent.objects.using(using).filter(queue="").order_by("-id")
    recent = rows.values("type", "exchange", "routing_key")[:_RECENT]
    return {Published(**each) for each in recent}


def _about_outbox(using: str) -> Iterator[Finding]:
    rows = OutboxEvent.objects.using(using)
    stuck = rows.filter(state__in=(OutboxEvent.State.UNROUTABLE, OutboxEvent.State.FAILED))
    for state, event_type, number in stuck.values_list("state", "type").annotate(Count("id")):
        is_unroutable = state == OutboxEvent.State.UNROUTABLE
        why = "no queue is bound to take them" if is_unroutable else "the broker will not have them"
        yield warning(
            f"{number} events of the type {event_type!r} were not sent: {why}.",
            "Mend that, then publish them again from the outbox in the admin.",
        )
    ready = rows.filter(state=OutboxEvent.State.READY)
    oldest = ready.aggregate(oldest=Min("created_at"))["oldest"]
    if oldest and timezone.now() - oldest > _UNSENT:
        age = label(round((timezone.now() - oldest).total_seconds()))
        yield warning(
            f"The oldest event that is to be sent has waited for {age} in the database {using!r}.",
            _relay_for(using),
        )


def _relay_for(using: str) -> str:
    if using not in registry.databases():
        return (
            f"Start relay_events --database {using}: no subscription uses this database, and so "
            "consume_events --with-relay does not relay it."
        )
    return "Start relay_events, or consume_events --with-relay; in an outage it waits for its end."


def _about_handlers(using: str) -> Iterator[Finding]:
    attempts = Attempt.objects.using(using).filter(duration__gt=_LONG_HANDLER)
    for name, longest in attempts.values_list("subscription").annotate(Max("duration")):
        yield warning(
            f"An attempt of {name} took {label(round(longest))}; RabbitMQ takes a message away "
            "from a consumer after 30 minutes, unless it is configured otherwise.",
            "Raise consumer_timeout in rabbitmq.conf, or let the handler do less at a time.",
        )
