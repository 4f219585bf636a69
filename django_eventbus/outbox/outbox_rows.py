"""Build and check the outbox row of an event, or of a message to one queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from zlib import crc32

from django.utils import timezone

from django_eventbus.conf import NAME_LIMIT, conf
from django_eventbus.durations import Duration, seconds
from django_eventbus.events.event import Command, Event, Meta, cause, is_type
from django_eventbus.events.formats import write as write_format
from django_eventbus.events.message import (
    CAUSATION,
    DEBUG,
    KEY,
    NOT_BEFORE,
    VERSION,
    Message,
    headers_problem,
    uuid7,
)
from django_eventbus.events.payload import body_of, payload_of_body
from django_eventbus.events.routing import COMMANDS, Route, exchange_of
from django_eventbus.events.system import is_system
from django_eventbus.events.text import is_storable, storable
from django_eventbus.exceptions import InvalidEvent, InvalidPayload
from django_eventbus.models import OutboxEvent
from django_eventbus.models.message_columns import message_columns
from django_eventbus.observability.tracing.spans import created

Publication = Event | tuple[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """The options of publish() and send_command()."""

    route: Route
    now: datetime
    due_at: datetime | None
    headers: Mapping[str, Any]
    correlation_id: str
    is_debug: bool


def message_for(publication: Publication, *, key: object, sending: Sending) -> Message:
    """Return the message that publish() would send, without writing anything."""
    return event_row(publication, key, sending).message()


def write_addressed_row(
    message: Message, *, queue: str, subscription: str, due_at: datetime | None, using: str
) -> OutboxEvent:
    """Write a row that sends *message* to one subscription: a retry without a tier, or a re-drive."""
    row = addressed_row(message, queue=queue, subscription=subscription, due_at=due_at)
    row.save(using=using, force_insert=True)
    return row


def addressed_row(
    message: Message, *, queue: str, subscription: str, due_at: datetime | None = None
) -> OutboxEvent:
    """Return the row of write_addressed_row(), not saved."""
    state = OutboxEvent.State.SCHEDULED if due_at else OutboxEvent.State.READY
    row = OutboxEvent(
        **message_columns(message),
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


def sending_options(
    route: Route,
    delay: Duration | None,
    at: datetime | None,
    headers: Mapping[str, Any] | None,
    correlation_id: str,
    debug: bool,
) -> Sending:
    """Return the options, or raise InvalidEvent."""
    now = timezone.now()
    return Sending(
        route=route,
        now=now,
        due_at=_due(delay, at, now),
        headers=headers or {},
        correlation_id=_short("correlation_id", str(correlation_id or "")),
        is_debug=bool(debug),
    )


def event_row(publication: object, key: object, sending: Sending) -> OutboxEvent:
    event_type, version, body = _parts(publication, sending.route)
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
        body=body,
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


def _parts(publication: object, route: Route) -> tuple[str, int, bytes]:
    """Return type, version and body, or raise InvalidEvent."""
    if isinstance(publication, Event):
        event = publication
        body = _checked_body(event)
        _check_class(type(event), route)
        return _checked_type(event.event_type), event.event_version, body
    match publication:
        case (event_type, payload):
            checked_type = _checked_type(event_type)
            return checked_type, 1, body_of({} if payload is None else payload, conf.max_body_bytes)
    raise InvalidEvent(
        f"{publication!r:.100} is neither an Event nor a type and a payload, such as "
        "'order.placed', {'order_id': 1}"
    )


def _checked_type(event_type: object) -> str:
    if not is_type(event_type):
        raise InvalidEvent(
            f"type {event_type!r} is not a dotted name of at most 255 letters, digits, '_' and '-', "
            "such as 'order.placed'"
        )
    if is_system(str(event_type)):
        raise InvalidEvent(
            f"type {event_type!r} is reserved for the bus. Start it with another word"
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


def _checked_body(event: Event) -> bytes:
    body = body_of(event, conf.max_body_bytes)
    # The constructor of a Struct does not check types, so the body is decoded again.
    try:
        type(event).validated(payload_of_body(body))
    except InvalidPayload as error:
        raise InvalidEvent(str(error)) from None
    return body


def _due(delay: Duration | None, at: datetime | None, now: datetime) -> datetime | None:
    if delay is not None and at is not None:
        raise InvalidEvent("delay and at are both given. Give only one of them")
    if at is not None and (not isinstance(at, datetime) or timezone.is_naive(at)):
        raise InvalidEvent(f"at: {at!r:.100} is not a datetime with a time zone")
    if delay is None:
        return at
    try:
        return now + timedelta(seconds=seconds(delay))
    except ValueError as error:
        raise InvalidEvent(f"delay: {error}") from None


def _inherited(because: Meta | None) -> str:
    # The message of another service may have no id, or one that does not fit the column.
    return storable(because.correlation_id or because.id, NAME_LIMIT) if because else ""


def _headers(sending: Sending, version: int, key: str, causation_id: str) -> dict[str, Any]:
    headers, due_at = sending.headers, sending.due_at
    if not isinstance(headers, Mapping):
        raise InvalidEvent(f"headers is a {type(headers).__name__}, not a dict")
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
        raise InvalidEvent(f"{name} is longer than 255 bytes or contains a NUL or a lone surrogate")
    return text
