"""The progress of orders in billing, shipping and notifications."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from django_eventbus import registry
from django_eventbus.models import Attempt, DeadLetter, InboxRecord

from orders.events import OrderPlaced
from orders.models import Order

SETTLED = {"handled", "skipped", "parked", "healed", "discarded"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The state of one order in one subscription."""

    subscription: str
    state: str = "waiting"
    label: str = "waiting"
    attempts: int = 0
    error: str = ""

    @property
    def app(self) -> str:
        return self.subscription.partition(".")[0]

    @property
    def is_settled(self) -> bool:
        return self.state in SETTLED


class Progress:
    """The steps of some orders, read at once."""

    def __init__(self, orders: Sequence[Order]) -> None:
        of_orders = {"message_id__in": [str(order.event_id) for order in orders]}
        failures = Attempt.objects.filter(**of_orders)
        self.failures = Counter(failures.values_list("message_id", "subscription"))
        self.records = {_key(each): each for each in InboxRecord.objects.filter(**of_orders)}
        self.letters = {_key(each): each for each in DeadLetter.objects.filter(**of_orders)}

    def of(self, order: Order) -> list[Step]:
        return [self._step(str(order.event_id), name) for name in subscription_names()]

    def _step(self, message_id: str, subscription: str) -> Step:
        key = message_id, subscription
        record = self.records.get(key)
        if record is None:
            return Step(subscription=subscription)
        letter = self.letters.get(key)
        known = letter if letter and _says_more(letter) else record
        return Step(
            subscription=subscription,
            state=known.state,
            label=known.get_state_display(),
            attempts=self.failures[key] + (record.state == InboxRecord.State.HANDLED),
            error=record.error,
        )


def subscription_names() -> list[str]:
    return [each.name for each in registry if each.event_class is OrderPlaced]


def _key(row: InboxRecord | DeadLetter) -> tuple[str, str]:
    return row.message_id, row.subscription


def _says_more(letter: DeadLetter) -> bool:
    return letter.state not in (DeadLetter.State.OPEN, DeadLetter.State.UNKNOWN)
