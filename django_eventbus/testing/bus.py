"""EventBus, which delivers events in the thread and the transaction of a test."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar, overload

from django.db import DEFAULT_DB_ALIAS

from django_eventbus import transports
from django_eventbus.conf import conf
from django_eventbus.consumer.consumer import Consumer
from django_eventbus.events.event import Event, ReceivedEvent
from django_eventbus.events.formats import read
from django_eventbus.events.message import Message
from django_eventbus.exceptions import BadSetting
from django_eventbus.models import DeadLetter, OutboxEvent
from django_eventbus.outbox.relay import Relay
from django_eventbus.subscriptions.queue_specs import QueueSpec, queue_specs
from django_eventbus.subscriptions.subscription import Settlement, meta_of, registry
from django_eventbus.testing import broker_choice, fast_forward
from django_eventbus.testing.assertions import Expectation, listing
from django_eventbus.testing.deliver import Delivered, message_of, test_deliveries
from django_eventbus.transports.contract import Delivery, Subscriber
from django_eventbus.workers.loops import RelayLoop

E = TypeVar("E", bound=Event)


class NotQuiet(AssertionError):
    """drain() reached its limit: events are published or retried without end."""


class EventBus:
    """
    The published events and dead letters of a test, with methods to deliver events.

    Created with the settings of broker_choice.settings_for(), and closed after the test.
    """

    def __init__(self, databases: Iterable[str] = (DEFAULT_DB_ALIAS,)) -> None:
        self._allowed = set(databases)
        self._namespace = conf.namespace
        self._is_on_database = transports.scheme_of(conf.broker_url) == "database"
        self._transport = transports.connect(conf.broker_url)
        self._publisher = fast_forward.ImmediatePublisher(self._transport.publisher())
        self._consumer = Consumer(self._publisher)
        self._relay_loops: dict[str, RelayLoop] = {}
        self._declared: list[QueueSpec] = []

    def close(self) -> None:
        """Disconnect, and delete the queues that were declared on a broker."""
        self._publisher.close()
        if self._declared and not self._is_on_database:
            self._transport.remove(self._declared)

    @property
    def published(self) -> list[ReceivedEvent]:
        """Everything that was published, in order, whether it was relayed or not."""
        return [_event(row.message()) for row in self._rows()]

    @property
    def parked(self) -> list[DeadLetter]:
        """The dead letters that are open."""
        letters = (DeadLetter.objects.using(alias) for alias in self._databases)
        return [each for rows in letters for each in rows.filter(state="open").order_by("id")]

    @overload
    def assert_published(
        self, event: type[E], /, *, count: int | None = ..., key: object = ...,
        payload: Mapping[str, Any] | None = ..., **fields: Any,
    ) -> E: ...  # fmt: skip
    @overload
    def assert_published(
        self, event: str, /, *, count: int | None = ..., key: object = ...,
        payload: Mapping[str, Any] | None = ..., **fields: Any,
    ) -> ReceivedEvent: ...  # fmt: skip
    def assert_published(
        self,
        event: type[Event] | str,
        /,
        *,
        count: int | None = None,
        key: object = None,
        payload: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Event | ReceivedEvent:
        """
        Return the first event of that class, type or pattern whose payload has these *fields*.

        Fail with a list of the published events if there is none, or if there are not *count*.
        """
        wanted = Expectation(event=event, fields=fields, payload=payload or {}, key=key)
        published = self.published
        found = [each for each in published if wanted.is_met_by(each)]
        if not found or (count is not None and len(found) != count):
            number = "No" if not found else len(found)
            expected = "" if count is None else f"; {count} expected"
            raise AssertionError(f"{number} {wanted} published{expected}. {listing(published)}")
        return wanted.typed(found[0])

    def assert_not_published(
        self,
        event: type[Event] | str,
        /,
        *,
        key: object = None,
        payload: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        """Fail if an event of that class, type or pattern with these *fields* was published."""
        wanted = Expectation(event=event, fields=fields, payload=payload or {}, key=key)
        published = self.published
        if any(wanted.is_met_by(each) for each in published):
            raise AssertionError(f"{wanted} was published. {listing(published)}")

    def deliver(
        self,
        event: Event | ReceivedEvent | str,
        payload: Any = None,
        *,
        subscription: str | Callable[..., object] = "",
        key: object = None,
        headers: Mapping[str, Any] | None = None,
        debug: bool = False,
    ) -> Delivered:
        """
        Deliver *event* to the matching subscriptions, or to one, as a consumer does.

        The error of a handler is not raised; see its outcome. A retry waits for drain().
        An event that has a meta keeps its id, so that a second delivery is a duplicate.
        """
        self._prepare()
        message = message_of(event, payload, key=key, headers=headers, debug=debug)
        settlements: list[Settlement] = []
        for delivery in test_deliveries(message, subscription):
            settlements += self._consume(delivery)
        return Delivered(settlements=tuple(settlements))

    def drain(self, *, limit: int = 1000) -> Delivered:
        """
        Relay and handle until no event is left. Delays are skipped.

        Raise NotQuiet after *limit* messages.
        """
        self._prepare()
        settlements: list[Settlement] = []
        subscriber = self._transport.subscriber(registry.queues(), prefetch=1)
        try:
            left = limit
            while (relayed := self._relay()) or not subscriber.is_drained():
                settled = self._receive_and_consume(subscriber)
                settlements += settled
                left -= relayed + len(settled)
                if left < 0:
                    raise NotQuiet(_loop_message(settlements, limit))
        finally:
            subscriber.close()
        return Delivered(settlements=tuple(settlements))

    def _relay(self) -> int:
        with fast_forward.committing(self._databases):
            for alias in self._databases:
                fast_forward.make_due(alias)
            return sum(self._relay_loop(alias).step() for alias in self._databases)

    def _relay_loop(self, alias: str) -> RelayLoop:
        # One for the whole test, because on SQLite another one would wait for its lease.
        if alias not in self._relay_loops:
            relay = Relay(self._publisher, alias)
            self._relay_loops[alias] = RelayLoop(relay, threading.Event(), once=True)
        return self._relay_loops[alias]

    def _receive_and_consume(self, subscriber: Subscriber) -> list[Settlement]:
        delivery = subscriber.receive(0)
        return self._consume(fast_forward.ImmediateDelivery(delivery)) if delivery else []

    def _consume(self, delivery: Delivery) -> list[Settlement]:
        with fast_forward.committing(self._databases):
            return self._consumer.consume(delivery)

    def _prepare(self) -> None:
        fast_forward.raise_if_in_transaction(self._databases)
        specs = queue_specs()
        if specs != self._declared:
            self._require_own_names()
            self._declared = specs
            self._transport.declare(specs)

    def _require_own_names(self) -> None:
        if self._is_on_database:
            return
        if conf.namespace != self._namespace:
            raise BadSetting("NAMESPACE", "was changed by the test: keep what is in EVENTBUS.")
        if shared := broker_choice.shared_names(conf.names, conf.routes):
            raise BadSetting(
                "NAMES", f"{shared[0]} is shared with other tests. Add {{namespace}} to it."
            )

    @property
    def _databases(self) -> list[str]:
        return [alias for alias in registry.databases() if alias in self._allowed]

    def _rows(self) -> Iterator[OutboxEvent]:
        for alias in self._databases:
            yield from OutboxEvent.objects.using(alias).filter(queue="").order_by("id")


def _event(message: Message) -> ReceivedEvent:
    reading = read(message, conf.max_body_bytes)
    meta = meta_of(reading.message, queue="", subscription=None)
    return ReceivedEvent(type=meta.type, payload=reading.payload, meta=meta)


def _loop_message(settlements: list[Settlement], limit: int) -> str:
    names = Counter(each.subscription.name for each in settlements[-100:] if each.subscription)
    most = ", ".join(name for name, _ in names.most_common(3)) or "no subscription"
    return (
        f"The bus still has messages after {limit} deliveries; the last went to {most}. "
        "Does a handler publish the event that it handles, or raise TooEarly in every run?"
    )
