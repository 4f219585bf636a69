"""Publish events in the same transaction as your data; handle each one once."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django_eventbus.events.event import Command as Command
    from django_eventbus.events.event import Event as Event
    from django_eventbus.events.event import Meta as Meta
    from django_eventbus.events.event import ReceivedEvent as ReceivedEvent
    from django_eventbus.exceptions import GiveUp as GiveUp
    from django_eventbus.exceptions import RetryLater as RetryLater
    from django_eventbus.exceptions import Skip as Skip
    from django_eventbus.exceptions import TooEarly as TooEarly
    from django_eventbus.outbox.event_signals import EventSignal as EventSignal
    from django_eventbus.outbox.model_events import publish_model_events as publish_model_events
    from django_eventbus.outbox.publish import cancel as cancel
    from django_eventbus.outbox.publish import publish as publish
    from django_eventbus.outbox.publish import publish_many as publish_many
    from django_eventbus.outbox.publish import send_command as send_command
    from django_eventbus.subscriptions.subscribe import handle_command as handle_command
    from django_eventbus.subscriptions.subscribe import subscribe as subscribe
    from django_eventbus.subscriptions.subscription import registry as registry

_HOMES = {
    "Command": "events.event",
    "Event": "events.event",
    "EventSignal": "outbox.event_signals",
    "GiveUp": "exceptions",
    "Meta": "events.event",
    "ReceivedEvent": "events.event",
    "RetryLater": "exceptions",
    "Skip": "exceptions",
    "TooEarly": "exceptions",
    "cancel": "outbox.publish",
    "handle_command": "subscriptions.subscribe",
    "publish": "outbox.publish",
    "publish_many": "outbox.publish",
    "publish_model_events": "outbox.model_events",
    "send_command": "outbox.publish",
    "registry": "subscriptions.subscription",
    "subscribe": "subscriptions.subscribe",
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
