"""A service on somebody else's bus, driven from the test's own thread."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from django.utils import timezone

from django_eventbus import subscribe, transports
from django_eventbus.conf import conf
from django_eventbus.consumer.consumer import Consumer
from django_eventbus.events.message import Message, uuid7
from django_eventbus.models import Attempt, Binding, DeadLetter, InboxRecord, QueuedMessage
from django_eventbus.outbox.relay import Relay
from django_eventbus.subscriptions.queue_specs import queue_specs
from django_eventbus.subscriptions.subscription import registry
from django_eventbus.testing.fast_forward import make_due
from django_eventbus.transports.contract import Outgoing, ToExchange
from tests.shop.models import Effect
from tests.support.buses import Layout, recipe
from tests.support.helpers import eventually
from tests.support.interludes import Died, death


class Doomed:
    """A delivery whose consumer dies when everything is done but the ack."""

    def __init__(self, delivery: Any) -> None:
        self._delivery = delivery

    def __getattr__(self, name: str) -> Any:
        return getattr(self._delivery, name)

    def ack(self) -> None:
        raise Died("before the ack")


class Joined:
    """What the tests of the five documents do, whatever carries the messages."""

    def __init__(self, layout: Layout, settings: Any, **changes: object) -> None:
        self.layout = layout
        self.settings = settings
        settings.EVENTBUS = {**recipe(layout.heading), "POLL_INTERVAL": "50ms", **changes}
        self.transport = transports.connect(conf.broker_url)
        self.publisher = self.transport.publisher()
        self.relayer = Relay(self.publisher, "default")
        self.consumer = self._consumer()
        self.subscriber: Any = None

    def _consumer(self) -> Consumer:
        return Consumer(self.publisher, self.transport.dead_letter_queue)

    def configure(self, **changes: object) -> None:
        self.settings.EVENTBUS = {**self.settings.EVENTBUS, **changes}

    @property
    def queue(self) -> str:
        return conf.queue(self.layout.queue)

    def subscribe(self, handler: Any, pattern: str = "", **options: Any) -> None:
        """Let *handler* have what the layout publishes."""
        options = {"queue": self.layout.queue, "name": "handler", **options}
        subscribe(pattern or self.layout.event, **options)(handler)
        self.transport.declare(queue_specs())

    def work_until(self, condition: Any) -> Any:
        def worked() -> Any:
            self.work()
            return condition()

        return eventually(worked, timeout=40, message=self._state)

    def work_by_ones_until(self, condition: Any) -> Any:
        """Look after each message: on a slow machine a tier returns one before there is a pause."""

        def worked() -> Any:
            self.relay()
            self.consume_one()
            return condition()

        return eventually(worked, timeout=40, message=self._state)

    def work(self) -> None:
        """Relay and consume what is due."""
        self.relay()
        while self.consume_one():
            pass

    def relay(self) -> None:
        """Relay what is due; whoever died before is started again."""
        self.relayer.relay_once()
        self.subscriber = self.subscriber or self.transport.subscriber(registry.queues(), 10)

    def consume_one(self) -> bool:
        """Consume the next message; tell whether there was one."""
        if delivery := self.subscriber.receive(0.05):
            self.consumer.consume(delivery)
        return delivery is not None

    def settle(self, number: int = 1) -> None:
        """Work until *number* messages are settled for good."""
        final = ("handled", "skipped", "parked")
        self.work_until(lambda: InboxRecord.objects.filter(state__in=final).count() == number)

    def die_at(self, point: str) -> None:
        """Work until this step, and be killed there: nothing in hand is acked."""
        with death(point):
            self.work_until(lambda: False)
        self.restart()

    def die_before_ack(self) -> None:
        """Receive one message, do all that is to be done, and be killed."""
        self.restart()
        self.relayer.relay_once()
        self.subscriber = self.transport.subscriber(registry.queues(), 1)
        delivery = eventually(lambda: self.subscriber.receive(0.05))
        try:
            self.consumer.consume(Doomed(delivery))
        except Died:
            self.restart()

    def restart(self) -> None:
        if self.subscriber:
            self.subscriber.close()
            self.subscriber = None

    def close(self) -> None:
        self.restart()
        self.relayer.close()

    def seen_by(self, queue: str) -> list[tuple[str, int]]:
        """Take everything out of *queue*: ids, each with its number of retries."""
        return [
            (each.message_id, (each.headers or {}).get("x-retry-count", 0))
            for each, _ in self.taken(queue)
        ]

    @property
    def attempts(self) -> int:
        """How often the handler has failed."""
        return Attempt.objects.count()

    @property
    def effects(self) -> list[str]:
        return list(Effect.objects.values_list("event_id", flat=True))

    @property
    def letter(self) -> DeadLetter:
        return DeadLetter.objects.get()

    def _state(self) -> str:
        inbox = list(InboxRecord.objects.values_list("state", "attempt", "error"))
        return f"inbox {inbox} letters {list(DeadLetter.objects.values_list('state', 'error'))}"


class OnDatabase(Joined):
    """On `database://`: the names are those of the recipe, the delays are over at once."""

    is_broker = False

    def __init__(self, layout: Layout, settings: Any) -> None:
        super().__init__(layout, settings, BROKER_URL="database://")
        Binding.objects.bind(layout.exchange, layout.bystander, ["#"])

    def relay(self) -> None:
        now = timezone.now()
        QueuedMessage.objects.filter(available_at__gt=now).update(available_at=now)
        make_due("default")
        super().relay()

    def put(self, event_type: str, payload: bytes = b"{}", **changes: Any) -> str:
        """Publish as a stranger would; return the message's id."""
        values = {"id": str(uuid7()), "source": "somebody", "routing_key": event_type, **changes}
        message = Message(type=values.pop("type", event_type), body=payload, **values)
        address = ToExchange(exchange=self.layout.exchange, routing_key=event_type)
        self.publisher.publish([Outgoing(address=address, message=message)])
        return message.id

    def depth(self, queue: str) -> int:
        return QueuedMessage.objects.filter(queue=queue).count()

    def taken(self, queue: str) -> list[tuple[Any, bytes]]:
        """Take everything out of *queue*: properties, as a broker names them, and bodies."""
        rows = list(QueuedMessage.objects.filter(queue=queue).order_by("id"))
        QueuedMessage.objects.filter(queue=queue).delete()
        return [
            (
                SimpleNamespace(
                    message_id=row.message_id, type=row.type, app_id=row.source, headers=row.headers
                ),
                bytes(row.body),
            )
            for row in rows
        ]


class OnRabbitmq(Joined):
    """On a broker where somebody has declared everything by hand, with tiers of 100 ms."""

    is_broker = True

    def __init__(self, layout: Layout, settings: Any, hands: Any, url: str) -> None:
        self.hands = hands
        layout.lay_out(hands)
        hands.empty()
        super().__init__(layout, settings, BROKER_URL=url)

    def put(self, event_type: str, payload: bytes = b"{}", **changes: Any) -> str:
        """Publish as a stranger would; return the message's id."""
        return self.hands.send(self.layout.exchange, event_type, payload, **changes)

    def depth(self, queue: str) -> int:
        return self.hands.channel.queue_declare(queue, passive=True).method.message_count

    def taken(self, queue: str) -> list[tuple[Any, bytes]]:
        """Take everything out of *queue*: properties and bodies."""
        return list(self.hands.taken(queue))
