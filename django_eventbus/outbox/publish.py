"""Publish events and commands: write them to the outbox in the caller's transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connections, transaction

from django_eventbus.conf import conf
from django_eventbus.durations import Duration
from django_eventbus.events.event import Command, Event
from django_eventbus.events.routing import COMMANDS, EVENTS
from django_eventbus.exceptions import InvalidEvent, NoTransaction
from django_eventbus.models import OutboxEvent
from django_eventbus.outbox.outbox_rows import Publication, Sending, event_row, sending_options


def publish(  # noqa: PLR0913
    event: Event | str,
    payload: Any = None,
    *,
    key: object = None,
    delay: Duration | None = None,
    at: datetime | None = None,
    headers: Mapping[str, Any] | None = None,
    correlation_id: str = "",
    debug: bool = False,
    using: str = DEFAULT_DB_ALIAS,
) -> UUID:
    """
    Write *event* to the outbox, in the current transaction if there is one; return its id.

    Raise InvalidEvent, before anything is written, if the broker could not accept it.
    """
    sending = sending_options(EVENTS, delay, at, headers, correlation_id, debug)
    return write(event, payload, key=key, sending=sending, using=using)


def publish_many(  # noqa: PLR0913
    events: Iterable[Publication],
    *,
    key: Callable[[Any], object] | object = None,
    delay: Duration | None = None,
    at: datetime | None = None,
    headers: Mapping[str, Any] | None = None,
    correlation_id: str = "",
    debug: bool = False,
    using: str = DEFAULT_DB_ALIAS,
) -> list[UUID]:
    """
    Write many events, each an Event or a (type, payload) pair; all of them or none.

    *key* may be a function of the event.
    """
    _require_transaction(using)
    sending = sending_options(EVENTS, delay, at, headers, correlation_id, debug)
    rows = [event_row(each, key(each) if callable(key) else key, sending) for each in events]
    with transaction.atomic(using=using):
        OutboxEvent.objects.using(using).bulk_create(rows, batch_size=500)
    return [UUID(row.message_id) for row in rows]


def write(event: Event | str, payload: Any, *, key: object, sending: Sending, using: str) -> UUID:
    """Write one row to the outbox; return the id of the message."""
    _require_transaction(using)
    publication = (event, payload) if isinstance(event, str) else _typed(event, payload)
    row = event_row(publication, key, sending)
    row.save(using=using, force_insert=True)
    return UUID(row.message_id)


def cancel(event_id: UUID | str, *, using: str = DEFAULT_DB_ALIAS) -> bool:
    """Cancel an event that is not due yet; return whether it was cancelled."""
    return OutboxEvent.objects.using(using).cancel(str(event_id)) > 0


def _require_transaction(using: str) -> None:
    if conf.require_transaction and not connections[using].in_atomic_block:
        raise NoTransaction(
            "publish() was called outside a transaction and REQUIRE_TRANSACTION is on. "
            "Call it in the same transaction.atomic() block that writes the data."
        )


def _typed(event: Event, payload: Any) -> Event:
    if payload is not None:
        raise InvalidEvent("a typed event has its payload in its fields. Do not pass a payload")
    return event


def send_command(  # noqa: PLR0913
    command: Command | str,
    payload: Any = None,
    *,
    key: object = None,
    delay: Duration | None = None,
    at: datetime | None = None,
    headers: Mapping[str, Any] | None = None,
    correlation_id: str = "",
    debug: bool = False,
    using: str = DEFAULT_DB_ALIAS,
) -> UUID:
    """
    Write *command* to the outbox, in the current transaction if there is one; return its id.

    Raise InvalidEvent, before anything is written, if the broker could not accept it.
    """
    sending = sending_options(COMMANDS, delay, at, headers, correlation_id, debug)
    return write(command, payload, key=key, sending=sending, using=using)
