"""The events of the bus itself, `system.#`: ping and pong."""

from __future__ import annotations

import socket
from dataclasses import dataclass

import msgspec

from django_eventbus.events.message import Message, uuid7

#: Every queue is bound with this pattern and with the patterns of its subscriptions.
PATTERN = "system.#"
PING = "system.ping"
PONG = "system.pong"
#: The second is the ping of nano-service.
PINGS = (PING, "system.ping.1")
#: Other types of this kind belong to somebody else, and are handled or parked like every event.
_OWN_TYPES = (*PINGS, PONG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The queue, service and host that answered a ping."""

    queue: str
    service: str = ""
    host: str = ""


def is_system(topic: str) -> bool:
    """Whether an event type, or a pattern of types, belongs to the bus itself."""
    return topic == "system" or topic.startswith("system.")


def is_system_event(message: Message) -> bool:
    """Whether *message* is a ping or a pong."""
    # Not by its first routing key, which is a header that anybody may send.
    return (message.type or message.routing_key) in _OWN_TYPES


def ping_of(service: str) -> Message:
    return Message(id=str(uuid7()), type=PING, body=b"{}", source=service)


def pong_to(ping: Message, queue: str, service: str) -> Message | None:
    """Return the answer to *ping*; None if it is not a ping or expects no answer."""
    if ping.type not in PINGS or not ping.reply_to:
        return None
    facts = Answer(queue=queue, service=service, host=socket.gethostname())
    return Message(
        id=str(uuid7()),
        type=PONG,
        body=msgspec.json.encode(facts),
        source=service,
        correlation_id=ping.correlation_id or ping.id,
    )


def answer_in(pong: Message) -> Answer | None:
    """Return the answer in *pong*, or None if it cannot be read."""
    try:
        return msgspec.json.decode(pong.body, type=Answer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
