"""Publish events in the same transaction as your data; handle each one once."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django_eventbus.commands import handle_command as handle_command
    from django_eventbus.commands import send_command as send_command
    from django_eventbus.event_signals import EventSignal as EventSignal
    from django_eventbus.events import Command as Command
    from django_eventbus.events import Event as Event
    from django_eventbus.events import Meta as Meta
    from django_eventbus.events import ReceivedEvent as ReceivedEvent
    from django_eventbus.exceptions import GiveUp as GiveUp
    from django_eventbus.exceptions import RetryLater as RetryLater
    from django_eventbus.exceptions import Skip as Skip
    from django_eventbus.exceptions import TooEarly as TooEarly
    from django_eventbus.model_events import publish_model_events as publish_model_events
    from django_eventbus.outbox import cancel as cancel
    from django_eventbus.outbox import publish as publish
    from django_eventbus.outbox import publish_many as publish_many
    from django_eventbus.subscribing import subscribe as subscribe

_HOMES = {
    "Command": "events",
    "Event": "events",
    "EventSignal": "event_signals",
    "GiveUp": "exceptions",
    "Meta": "events",
    "ReceivedEvent": "events",
    "RetryLater": "exceptions",
    "Skip": "exceptions",
    "TooEarly": "exceptions",
    "cancel": "outbox",
    "handle_command": "commands",
    "publish": "outbox",
    "publish_many": "outbox",
    "publish_model_events": "model_events",
    "send_command": "commands",
    "subscribe": "subscribing",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    # Lazy, because Django imports this package before the app registry is
    # ready, and the outbox imports models.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
