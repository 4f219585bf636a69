"""Publish by signal: send() writes to the outbox, and a receiver is a subscription."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import DEFAULT_DB_ALIAS
from django.dispatch import Signal

from django_eventbus.events.event import Event, ReceivedEvent
from django_eventbus.outbox.publish import publish
from django_eventbus.subscriptions.subscribe import name_of, subscribe
from django_eventbus.subscriptions.subscription import Subscription, registry

Receiver = Callable[..., object]


class EventSignal(Signal):
    """
    A Django signal that crosses processes.

    Sending it writes the event to the outbox, in the current transaction, and does nothing else.
    Every receiver is a subscription named by its dispatch_uid, which runs when the event arrives,
    in this project or in another that declares the same signal.
    """

    def __init__(
        self,
        event: type[Event] | str,
        *,
        key: str | Callable[[Any], object] | None = None,
        using: str = DEFAULT_DB_ALIAS,
    ) -> None:
        super().__init__()
        self.event = event
        self.key = key
        self.database = using
        self._subscriptions: dict[str, Subscription] = {}

    def send(self, sender: object = None, **fields: Any) -> UUID:  # type: ignore[override]
        """Publish the event with these *fields*; return its id. The sender is not transmitted."""
        if isinstance(self.event, str):
            key = self._key(fields, fields.get)
            return publish(self.event, fields, key=key, using=self.database)
        event = self.event(**fields)
        key = self._key(event, lambda name: getattr(event, name))
        return publish(event, key=key, using=self.database)

    def send_robust(self, sender: object = None, **fields: Any) -> UUID:  # type: ignore[override]
        """Do the same as send(): no receiver runs here. An invalid event still raises InvalidEvent."""
        return self.send(sender, **fields)

    async def asend(self, sender: object = None, **fields: Any) -> UUID:  # type: ignore[override]
        """Do the same as send() in asynchronous code."""
        return await sync_to_async(self.send)(sender, **fields)

    async def asend_robust(self, sender: object = None, **fields: Any) -> UUID:  # type: ignore[override]
        """Do the same as asend()."""
        return await self.asend(sender, **fields)

    def connect(
        self,
        receiver: Receiver,
        sender: object = None,
        weak: bool = True,
        dispatch_uid: object = None,
        **options: Any,
    ) -> None:
        """Subscribe *receiver*; *options* are those of @subscribe, such as queue and retry."""
        if sender is not None:
            raise TypeError("An EventSignal does not transmit its sender: connect without sender=")
        name = _name(receiver, dispatch_uid)
        # As with any signal, a second connect() of the same receiver has no effect.
        if name not in self._subscriptions:
            subscribe(self.event, name=name, **options)(self._handler(receiver))
            self._subscriptions[name] = registry.latest

    def disconnect(
        self,
        receiver: Receiver | None = None,
        sender: object = None,
        dispatch_uid: object = None,
    ) -> bool:
        """Remove the subscription; return whether there was one."""
        found = self._subscriptions.pop(_name(receiver, dispatch_uid), None)
        if found:
            registry.remove(found)
        return found is not None

    def has_listeners(self, sender: object = None) -> bool:
        """Whether this project has a receiver; other projects may have more."""
        return bool(self._subscriptions)

    def _handler(self, receiver: Receiver) -> Callable[[Event | ReceivedEvent], object]:
        sender = self.event

        def handle(event: Event | ReceivedEvent) -> object:
            return receiver(sender=sender, signal=self, event=event)

        return handle

    def _key(self, event: Any, field: Callable[[str], object]) -> object:
        if self.key is None:
            return None
        return field(self.key) if isinstance(self.key, str) else self.key(event)


def _name(receiver: Receiver | None, dispatch_uid: object) -> str:
    if dispatch_uid:
        return str(dispatch_uid)
    return name_of(receiver) if receiver else ""
