"""The names and values of span attributes."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django_eventbus.conf import conf
from django_eventbus.events.message import Message
from django_eventbus.events.text import storable

if TYPE_CHECKING:
    # JSON logs import this while Django configures logging, before models can be imported.
    from django_eventbus.models import OutboxEvent

#: The version of the semantic conventions that define the names below.
SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
SCOPE = "django_eventbus"
CREATE = "create"
PUBLISH = "publish"
PROCESS = "process"
SYSTEM = "messaging.system"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION = "messaging.destination.name"
ROUTING_KEY = "messaging.rabbitmq.destination.routing_key"
MESSAGE_ID = "messaging.message.id"
CONVERSATION_ID = "messaging.message.conversation_id"
MESSAGE_COUNT = "messaging.batch.message_count"
ERROR_TYPE = "error.type"
EXCEPTION = "exception"
EXCEPTION_TYPE = "exception.type"
EXCEPTION_STACKTRACE = "exception.stacktrace"
EVENT_TYPE = "eventbus.event.type"
EVENT_VERSION = "eventbus.event.version"
QUEUE = "eventbus.queue"
SUBSCRIPTION = "eventbus.subscription"
ATTEMPT = "eventbus.attempt"
ROUND = "eventbus.round"
OUTCOME = "eventbus.outcome"
KIND = "eventbus.kind"
NOT_TAKEN = "eventbus.not_taken"

#: The operation types of the conventions for the operations of this package.
_TYPES = {CREATE: "create", PUBLISH: "send", PROCESS: "process"}
_RABBITMQ = "rabbitmq"

#: The maximum number of frames of a traceback. The innermost are kept, because the error is there.
_PLACES = 50
_SHORT = 255


def operation(name: str) -> dict[str, Any]:
    """Return the attributes of every span of the operation *name*."""
    return {
        SYSTEM: _RABBITMQ if conf.broker_url.startswith("amqp") else SCOPE,
        OPERATION_NAME: name,
        OPERATION_TYPE: _TYPES[name],
    }


def destination_of(row: OutboxEvent) -> str:
    """Return the name of the destination of *row*."""
    return joined(row.exchange, row.routing_key)


def joined(exchange: str, routing_key: str, queue: str = "") -> str:
    """Return the name of a destination by the conventions: no empty or repeated parts."""
    parts = dict.fromkeys((exchange, routing_key, queue))
    return ":".join(storable(part, _SHORT) for part in parts if part)


def row_attributes(row: OutboxEvent) -> dict[str, Any]:
    """Return the attributes of a span for one outbox *row*."""
    return {
        **_routing(destination_of(row), row.routing_key),
        MESSAGE_ID: row.message_id,
        CONVERSATION_ID: row.correlation_id,
        EVENT_TYPE: row.type,
        EVENT_VERSION: row.version,
    }


def message_attributes(message: Message, destination: str) -> dict[str, Any]:
    """Return the attributes of a span for one received *message*."""
    return {
        **_routing(destination, message.first_routing_key),
        MESSAGE_ID: storable(message.id, _SHORT),
        CONVERSATION_ID: storable(message.correlation_id, _SHORT),
        EVENT_TYPE: storable(message.type, _SHORT),
        EVENT_VERSION: message.version,
        ATTEMPT: message.attempt,
        ROUND: message.round,
    }


def _routing(destination: str, routing_key: str) -> dict[str, Any]:
    is_rabbitmq = conf.broker_url.startswith("amqp")
    key = {ROUTING_KEY: storable(routing_key, _SHORT)} if is_rabbitmq else {}
    return {DESTINATION: destination, **key}


def exception_attributes(error: BaseException) -> Mapping[str, str]:
    """Return the type of *error* and its stack, without its text and without source lines."""
    frames = traceback.StackSummary.extract(
        traceback.walk_tb(error.__traceback__), lookup_lines=False
    )[-_PLACES:]
    places = (f"{each.filename}:{each.lineno} in {each.name}" for each in frames)
    return {
        EXCEPTION_TYPE: error_type(error),
        EXCEPTION_STACKTRACE: "\n".join(places),
    }


def error_type(error: BaseException) -> str:
    kind = type(error)
    is_builtin = kind.__module__ == "builtins"
    return kind.__qualname__ if is_builtin else f"{kind.__module__}.{kind.__qualname__}"
