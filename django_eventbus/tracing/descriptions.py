"""What spans say of messages: never a payload, never the words of an error. Pure."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

from django_eventbus.conf import conf
from django_eventbus.messages import Message, storable
from django_eventbus.models import OutboxEvent
from django_eventbus.tracing import names

#: What the operations of this package are in the conventions.
_TYPES = {names.CREATE: "create", names.PUBLISH: "send", names.PROCESS: "process"}
_RABBITMQ = "rabbitmq"
#: The deepest places of a traceback, where the error is.
_PLACES = 50
_SHORT = 255


def operation(name: str) -> dict[str, Any]:
    """Return what every span of the operation *name* says."""
    return {
        names.SYSTEM: _RABBITMQ if conf.broker_url.startswith("amqp") else names.SCOPE,
        names.OPERATION_NAME: name,
        names.OPERATION_TYPE: _TYPES[name],
    }


def destination_of(row: OutboxEvent) -> str:
    """Return where *row* goes."""
    return joined(row.exchange, row.routing_key)


def joined(exchange: str, routing_key: str, queue: str = "") -> str:
    """Return a destination as the conventions name it: without what is empty or said twice."""
    parts = dict.fromkeys((exchange, routing_key, queue))
    return ":".join(storable(part, _SHORT) for part in parts if part)


def row_attributes(row: OutboxEvent) -> dict[str, Any]:
    """Return what a span of one outbox *row* says."""
    return {
        **_routing(destination_of(row), row.routing_key),
        names.MESSAGE_ID: row.message_id,
        names.CONVERSATION_ID: row.correlation_id,
        names.EVENT_TYPE: row.type,
        names.EVENT_VERSION: row.version,
    }


def message_attributes(message: Message, destination: str) -> dict[str, Any]:
    """Return what a span of one received *message* says."""
    return {
        **_routing(destination, message.first_routing_key),
        names.MESSAGE_ID: storable(message.id, _SHORT),
        names.CONVERSATION_ID: storable(message.correlation_id, _SHORT),
        names.EVENT_TYPE: storable(message.type, _SHORT),
        names.EVENT_VERSION: message.version,
        names.ATTEMPT: message.attempt,
        names.ROUND: message.round,
    }


def _routing(destination: str, routing_key: str) -> dict[str, Any]:
    is_rabbitmq = conf.broker_url.startswith("amqp")
    key = {names.ROUTING_KEY: storable(routing_key, _SHORT)} if is_rabbitmq else {}
    return {names.DESTINATION: destination, **key}


def exception_attributes(error: BaseException) -> Mapping[str, str]:
    """Return the type of *error* and the places it came by, without its words or source lines."""
    frames = traceback.StackSummary.extract(
        traceback.walk_tb(error.__traceback__), lookup_lines=False
    )[-_PLACES:]
    places = (f"{each.filename}:{each.lineno} in {each.name}" for each in frames)
    return {
        names.EXCEPTION_TYPE: error_type(error),
        names.EXCEPTION_STACKTRACE: "\n".join(places),
    }


def error_type(error: BaseException) -> str:
    kind = type(error)
    is_builtin = kind.__module__ == "builtins"
    return kind.__qualname__ if is_builtin else f"{kind.__module__}.{kind.__qualname__}"
