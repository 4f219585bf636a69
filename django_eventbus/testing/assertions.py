"""Find published events, and explain why one was not found."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django_eventbus.conf import conf
from django_eventbus.events.event import Event, ReceivedEvent
from django_eventbus.events.payload import body_of, payload_of_body
from django_eventbus.events.routing import matches

_SHOWN = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """An event by its class, type or pattern, with part of its payload and its key."""

    event: type[Event] | str
    fields: Mapping[str, Any]
    payload: Mapping[str, Any]
    key: object = None

    def __post_init__(self) -> None:
        """Raise TypeError for a field that the class does not have."""
        if isinstance(self.event, str):
            return
        for name in self.fields:
            if name not in self.event.__struct_fields__:
                raise TypeError(f"{self.event.__name__} has no field {name!r}")

    def __str__(self) -> str:
        parts = [f"{name}={value!r}" for name, value in {**self.fields, **self.payload}.items()]
        if self.key is not None:
            parts.append(f"key={str(self.key)!r}")
        return f"{self._type} with {', '.join(parts)}" if parts else self._type

    @property
    def _type(self) -> str:
        return self.event if isinstance(self.event, str) else self.event.event_type

    def is_met_by(self, published: ReceivedEvent) -> bool:
        """Whether *published* matches the expectation."""
        if not matches(self._type, published.type):
            return False
        if self.key is not None and published.meta.key != str(self.key):
            return False
        return is_within(_plain(self.payload), published.payload) and self._has_fields(published)

    def _has_fields(self, published: ReceivedEvent) -> bool:
        event = self.typed(published)
        if isinstance(event, ReceivedEvent):
            return is_within(_plain(self.fields), event.payload)
        return all(is_within(value, getattr(event, name)) for name, value in self.fields.items())

    def typed(self, published: ReceivedEvent) -> Event | ReceivedEvent:
        """Return *published* as an instance of the expected class."""
        if isinstance(self.event, str):
            return published
        return self.event.received(published.payload, published.meta)


def _plain(values: Mapping[str, Any]) -> Any:
    return payload_of_body(body_of(dict(values), conf.max_body_bytes))


def is_within(expected: Any, actual: Any) -> bool:
    """Whether *actual* contains *expected*; objects may have more keys."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        return all(key in actual and is_within(expected[key], actual[key]) for key in expected)
    return bool(expected == actual)


def listing(published: Sequence[ReceivedEvent]) -> str:
    """Return the published events, one per line, for the message of a failed test."""
    if not published:
        return "Nothing was published."
    return "\n".join(["Published events:", *(f"  {_line(each)}" for each in published)])


def _line(event: ReceivedEvent) -> str:
    payload = json.dumps(event.payload, ensure_ascii=False)
    shown = payload if len(payload) <= _SHOWN else f"{payload[:_SHOWN]}…"
    key = f" key={event.meta.key!r}" if event.meta.key else ""
    return f"{event.type} {shown}{key}"
