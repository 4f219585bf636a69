"""Check the results of the demo."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain

from django.db.models import QuerySet
from django_eventbus.models import DeadLetter, OutboxEvent

from billing.models import Invoice
from demonstration.summary import counted
from notifications.models import Notification
from notifications.subscribers import TIME_TO_ARRIVE
from orders.models import Order
from orders.progress import Progress, Step
from partner.models import PartnerEvent
from shipping.models import Shipment
from stock.events import StockChanged
from stock.models import StockItem

THANKS, SHIPPED, OPINION = Notification.Subject
EFFECTS = {
    "billing.charge": Invoice.objects.all(),
    "shipping.pack": Shipment.objects.all(),
    "notifications.confirm": Notification.objects.filter(subject=THANKS),
}
OPEN = (DeadLetter.State.OPEN, DeadLetter.State.UNKNOWN)

CHECKED = (
    "one effect or one open dead letter per order and app, never both.",
    "the parcel was picked up, announced, forwarded and asked about once, and not too early.",
    "each ledger has the changes of its item in the order in which they were published.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The expected result in billing. The other apps handle each order at the first attempt."""

    state: str
    attempts: int

    def said(self) -> str:
        return f"{self.state} after {counted(self.attempts)}"


FIRST_TIME = Expected(state="handled", attempts=1)
Plan = Sequence[tuple[Order, Expected]]


def problems(plan: Plan, shipped: Order) -> Iterator[str]:
    """Yield a sentence for each unexpected result."""
    return chain(
        problems_of_orders(plan),
        problems_of_parcel(shipped),
        *(problems_of_ledger(stock) for stock in StockItem.objects.all()),
    )


def problems_of_orders(plan: Plan) -> Iterator[str]:
    progress = Progress([order for order, _ in plan])
    for order, expected in plan:
        for step in progress.of(order):
            yield from _surprise(order, step, expected if step.app == "billing" else FIRST_TIME)
        for subscription, effects in EFFECTS.items():
            yield from _imbalance(order, subscription, effects)


def problems_of_parcel(order: Order) -> Iterator[str]:
    counts = {
        "notifications that it is on its way": order.notifications.filter(subject=SHIPPED).count(),
        "notifications that ask how it was": order.notifications.filter(subject=OPINION).count(),
        "events at the partner's": PartnerEvent.objects.filter(payload__order_id=order.pk).count(),
    }
    wrong = {what: count for what, count in counts.items() if count != 1}
    for what, count in wrong.items():
        yield f"Of {order} there are {count} {what}; there should be one."
    if not wrong and _waited(order) < timedelta(seconds=TIME_TO_ARRIVE):
        yield f"Of {order} the question how it was came too early."


def problems_of_ledger(stock: StockItem) -> Iterator[str]:
    changes = OutboxEvent.objects.filter(type=StockChanged.event_type, key=stock.pk, queue="")
    published = [json.loads(row.body)["left"] for row in changes.order_by("pk")]
    written = [line.left for line in stock.ledger.all()][1:]
    if written != published:
        yield f"The ledger of {stock} should have the lines {published}, but has {written}."


def _waited(order: Order) -> timedelta:
    shipped, asked = (order.notifications.get(subject=each) for each in (SHIPPED, OPINION))
    return asked.written_at - shipped.written_at


def _surprise(order: Order, step: Step, expected: Expected) -> Iterator[str]:
    if (step.state, step.attempts) != (expected.state, expected.attempts):
        yield (
            f"In {step.app}, {order} should be {expected.said()}, "
            f"but is {step.label} after {counted(step.attempts)}."
        )


def _imbalance(order: Order, subscription: str, effects: QuerySet) -> Iterator[str]:
    count = effects.filter(order=order).count()
    letters = DeadLetter.objects.filter(
        subscription=subscription, message_id=str(order.event_id), state__in=OPEN
    ).count()
    if count + letters != 1:
        yield (
            f"In {subscription}, {order} has {count} effects and {letters} open dead letters; "
            "there should be one of either and none of the other."
        )
