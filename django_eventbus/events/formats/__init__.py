"""Formats: the layouts of an event in a message. The bus writes one and reads all."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from django_eventbus.conf import conf
from django_eventbus.events.formats import cloudevents, envelope, native
from django_eventbus.events.formats.native import Reading
from django_eventbus.events.message import Message
from django_eventbus.exceptions import Undecodable

_WRITERS: Mapping[str, Callable[[Message], Message]] = {
    "envelope": envelope.written,
    "cloudevents": cloudevents.written,
}


def write(message: Message, name: str) -> Message:
    """Convert the native *message* to the format *name*, or raise InvalidEvent."""
    return _WRITERS[name](message) if name in _WRITERS else message


def read(message: Message, limit: int) -> Reading:
    """Decode *message* by its format, or raise Undecodable with every reason."""
    reading = _reading(message, limit)
    if reading.problems:
        raise Undecodable("; ".join(reading.problems))
    return reading


def recognised(message: Message, limit: int) -> Message:
    """Return *message* with the id, type and source from its format if they can be read."""
    return _reading(message, limit).message


def blamed(message: Message, error: str) -> Message:
    """Return *message* for a DLQ, with *error* in its body if its format has a field for it."""
    if cloudevents.is_structured(message) or cloudevents.is_binary(message):
        return message
    return envelope.blamed(message, error)


def with_payload(message: Message, body: bytes) -> Message:
    """Return *message* with another payload: in its own format if that is valid, or else native."""
    for change in (cloudevents.with_payload, envelope.with_payload):
        changed = change(message, body)
        if changed and not _reading(changed, conf.max_body_bytes).problems:
            return changed
    return native.with_payload(message, body)


def _reading(message: Message, limit: int) -> Reading:
    if message.fault:
        return Reading(message=message, problems=(message.fault,))
    if problem := native.size_problem(message, limit):
        problems = (*native.properties_problems(message), problem)
        return Reading(message=message, problems=problems)
    if cloudevents.is_structured(message):
        return cloudevents.read_structured(message)
    if cloudevents.is_binary(message):
        return cloudevents.read_binary(message)
    reading = native.read(message)
    return envelope.read(reading) if envelope.is_meant(reading) else reading
