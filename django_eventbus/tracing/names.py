"""How spans and their attributes are called. The only place that does; values, no behaviour."""

from __future__ import annotations

#: Of the semantic conventions that the names below are taken from.
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
