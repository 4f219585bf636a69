"""Publish: write outbox rows in the caller's transaction, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID
from zlib import crc32

from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.utils import timezone

from django_eventbus.conf import NAME_LIMIT, conf
from django_eventbus.durations import Duration, seconds
from django_eventbus.events import Command, Event, Meta, cause, is_type
from django_eventbus.exceptions import InvalidEvent, InvalidPayload, NoTransaction
from django_eventbus.formats import write as write_format
from django_eventbus.headers import headers_problem
from django_eventbus.messages import (
    CAUSATION,
    DEBUG,
    KEY,
    NOT_BEFORE,
    VERSION,
    Message,
    is_storable,
    storable,
    uuid7,
)
from django_eventbus.models import OutboxEvent
from django_eventbus.models.carried_message import columns_of
from django_eventbus.payloads import body_of, payload_of_body
from django_eventbus.routing import COMMANDS, EVENTS, Route, exchange_of
from django_eventbus.system_events import is_system
from django_eventbus.tracing.creating import created

Publication = Event | tuple[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """How something is to be sent, whatever it is."""

    route: Route
    now: datetime
    due_at: datetime | None
    headers: Mapping[str, Any]
    correlation_id: str
    is_debug: bool


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

    Raise InvalidEvent, before anything is written, if it could not be sent.
    """
    sending = sending_of(EVENTS, delay, at, headers, correlation_id, debug)
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
    sending = sending_of(EVENTS, delay, at, headers, correlation_id, debug)
    rows = [_row(each, key(each) if callable(key) else key, sending) for each in events]
    with transaction.atomic(using=using):
        OutboxEvent.objects.using(using).bulk_create(rows, batch_size=500)
    return [UUID(row.message_id) for row in rows]


def write(event: Event | str, payload: Any, *, key: object, sending: Sending, using: str) -> UUID:
    """Write one row to the outbox; return the id of the message."""
    _require_transaction(using)
    publication = (event, payload) if isinstance(event, str) else _typed(event, payload)
    row = _row(publication, key, sending)
    row.save(using=using, force_insert=True)
    return UUID(row.message_id)


def message_for(publication: Publication, *, key: object, sending: Sending) -> Message:
    """Return what publish() would have the relay send, without writing anything."""
    return _row(publication, key, sending).message()


def cancel(event_id: UUID | str, *, using: str = DEFAULT_DB_ALIAS) -> bool:
    """Take back an event that is not due yet; return whether that was in time."""
    return OutboxEvent.objects.using(using).cancel(str(event_id)) > 0


def address_again(
    message: Message, *, queue: str, subscription: str, due_at: datetime | None, using: str
) -> OutboxEvent:
    """Write a row that sends *message* to one subscription only: an odd delay or a re-drive."""
    row = addressed_row(message, queue=queue, subscription=subscription, due_at=due_at)
    row.save(using=using, force_insert=True)
    return row


def addressed_row(
    message: Message, *, queue: str, subscription: str, due_at: datetime | None = None
) -> OutboxEvent:
    """Return such a row, unsaved."""
    state = OutboxEvent.State.SCHEDULED if due_at else OutboxEvent.State.READY
    row = OutboxEvent(
        **columns_of(message),
        state=state,
        version=message.version,
        queue=queue,
        subscription=subscription,
        key=message.text(KEY),
        causation_id=message.text(CAUSATION),
        due_at=due_at,
    )
    row.exchange, row.routing_key = "", queue
    return row


def _require_transaction(using: str) -> None:
    if conf.require_transaction and not connections[using].in_atomic_block:
        raise NoTransaction(
            "publish() was called outside a transaction and REQUIRE_TRANSACTION is on: "
            "wrap it in transaction.atomic() with the data that it speaks of."
        )


def _typed(event: Event, payload: Any) -> Event:
    if payload is not None:
        raise InvalidEvent("a typed event carries its payload in its fields: pass no payload")
    return event


def sending_of(
    route: Route,
    delay: Duration | None,
    at: datetime | None,
    headers: Mapping[str, Any] | None,
    correlation_id: str,
    debug: bool,
) -> Sending:
    """Return how something is to be sent, or raise InvalidEvent."""
    now = timezone.now()
    return Sending(
        route=route,
        now=now,
        due_at=_due(delay, at, now),
        headers=headers or {},
        correlation_id=_short("correlation_id", str(correlation_id or "")),
        is_debug=bool(debug),
    )


def _row(publication: object, key: object, sending: Sending) -> OutboxEvent:
    event_type, version, payload = _parts(publication, sending.route)
    if is_system(event_type):
        raise InvalidEvent(f"type {event_type!r} is the bus's own: begin it with another word")
    because = cause.get()
    causation_id = because.id if because else ""
    key_text = _short("key", "" if key is None else str(key))
    message_id = str(uuid7())
    row = OutboxEvent(
        state=OutboxEvent.State.SCHEDULED if sending.due_at else OutboxEvent.State.READY,
        message_id=message_id,
        type=event_type,
        version=version,
        source=conf.service,
        exchange=exchange_of(sending.route, event_type),
        routing_key=_short("routing key", sending.route.routing_key_of(event_type, version)),
        key=key_text,
        shard=crc32((key_text or message_id).encode()) % conf.shards,
        body=body_of(payload, conf.max_body_bytes),
        headers=_headers(sending, version, key_text, causation_id),
        correlation_id=sending.correlation_id or _inherited(because) or message_id,
        causation_id=causation_id,
        sent_at=sending.now,
        created_at=sending.now,
        due_at=sending.due_at,
    )
    return _in_format(created(row), conf.format)


def _in_format(row: OutboxEvent, name: str) -> OutboxEvent:
    if name != "native":
        message = write_format(row.message(), name)
        row.body, row.headers = message.body, dict(message.headers)
    return row


def _parts(publication: object, route: Route) -> tuple[str, int, Any]:
    if isinstance(publication, Event):
        event = publication
        _check_fields(event)
        _check_class(type(event), route)
        return event.event_type, event.event_version, event
    match publication:
        case (event_type, payload):
            return _checked_type(event_type), 1, {} if payload is None else payload
    raise InvalidEvent(
        f"{publication!r:.100} is neither an Event nor a type and a payload, such as "
        "'order.placed', {'order_id': 1}"
    )


def _checked_type(event_type: object) -> str:
    if not is_type(event_type):
        raise InvalidEvent(
            f"type {event_type!r} is no dotted name of at most 255 letters, digits, '_' and '-', "
            "such as 'order.placed'"
        )
    return str(event_type)


def _check_class(event_class: type[Event], route: Route) -> None:
    name = event_class.__name__
    if not event_class.event_type:
        raise InvalidEvent(f"{name} has no type: add type= to its class")
    if issubclass(event_class, Command) is not (route is COMMANDS):
        remedy = "publish it" if route is COMMANDS else "send it with send_command()"
        raise InvalidEvent(
            f"{name} is {'an event' if route is COMMANDS else 'a command'}: {remedy}"
        )


def _check_fields(event: Event) -> None:
    # A Struct's constructor does not check types: read back what would be sent.
    try:
        type(event).validated(payload_of_body(body_of(event, conf.max_body_bytes)))
    except InvalidPayload as error:
        raise InvalidEvent(str(error)) from None


def _due(delay: Duration | None, at: datetime | None, now: datetime) -> datetime | None:
    if delay is not None and at is not None:
        raise InvalidEvent("delay and at are both given: write one of them")
    if at is not None and (not isinstance(at, datetime) or timezone.is_naive(at)):
        raise InvalidEvent(f"at: {at!r:.100} is no datetime with a time zone")
    if delay is None:
        return at
    try:
        return now + timedelta(seconds=seconds(delay))
    except ValueError as error:
        raise InvalidEvent(f"delay: {error}") from None


def _inherited(because: Meta | None) -> str:
    # Of a stranger's message, which may have none, or one that no column holds.
    return storable(because.correlation_id or because.id, NAME_LIMIT) if because else ""


def _headers(sending: Sending, version: int, key: str, causation_id: str) -> dict[str, Any]:
    headers, due_at = sending.headers, sending.due_at
    if not isinstance(headers, Mapping):
        raise InvalidEvent(f"headers is a {type(headers).__name__}; write a dict")
    if problem := headers_problem(headers):
        raise InvalidEvent(problem)
    own = {
        VERSION: version,
        KEY: key,
        CAUSATION: causation_id,
        DEBUG: sending.is_debug,
        NOT_BEFORE: int(due_at.timestamp() * 1000) if due_at else 0,
    }
    return {**headers, **{name: value for name, value in own.items() if value}}


def _short(name: str, text: str) -> str:
    if len(text.encode(errors="replace")) > NAME_LIMIT or not is_storable(text):
        raise InvalidEvent(f"{name} is longer than 255 bytes or holds a NUL or a lone surrogate")
    return text
