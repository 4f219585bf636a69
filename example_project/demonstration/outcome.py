"""The summary table, and whether everything came out as it should."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.db.models import Model
from django_eventbus.models import DeadLetter

from billing.models import Invoice
from demonstration.narrator import Narrator
from notifications.models import Notification
from orders.models import Order
from orders.progress import Progress, Step, subscription_names
from shipping.models import Shipment

EFFECTS = {
    "billing.charge": Invoice,
    "shipping.pack": Shipment,
    "notifications.confirm": Notification,
}
WIDTH = 19
OPEN = (DeadLetter.State.OPEN, DeadLetter.State.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What billing should make of an order; the others handle each at the first attempt."""

    state: str
    attempts: int

    def said(self) -> str:
        return f"{self.state} after {_counted(self.attempts)}"


FIRST_TIME = Expected(state="handled", attempts=1)
Plan = Sequence[tuple[Order, Expected]]


def print_summary(orders: Sequence[Order], narrator: Narrator) -> None:
    """Print a row per order and a column per subscription."""
    progress = Progress(orders)
    names = subscription_names()
    print(_row("order", "card", [f"{name.partition('.')[0]:<{WIDTH}}" for name in names]))
    print(_row("-" * 5, "-" * 7, ["-" * WIDTH for _ in names]))
    for order in orders:
        cells = [_cell(step, narrator) for step in progress.of(order)]
        print(_row(str(order.pk), order.card, cells), flush=True)


def problems(plan: Plan) -> Iterator[str]:
    """Yield a sentence for everything that did not come out as planned."""
    progress = Progress([order for order, _ in plan])
    for order, expected in plan:
        for step in progress.of(order):
            yield from _surprise(order, step, expected if step.app == "billing" else FIRST_TIME)
        for subscription, model in EFFECTS.items():
            yield from _imbalance(order, subscription, model)


def _surprise(order: Order, step: Step, expected: Expected) -> Iterator[str]:
    if (step.state, step.attempts) != (expected.state, expected.attempts):
        yield (
            f"In {step.app}, {order} should be {expected.said()}, "
            f"but is {step.label} after {_counted(step.attempts)}."
        )


def _imbalance(order: Order, subscription: str, model: type[Model]) -> Iterator[str]:
    effects = model.objects.filter(order=order).count()
    letters = DeadLetter.objects.filter(
        subscription=subscription, message_id=str(order.event_id), state__in=OPEN
    ).count()
    if effects + letters != 1:
        yield (
            f"In {subscription}, {order} has {effects} effects and {letters} open dead letters; "
            "there should be one of either and none of the other."
        )


def _row(order: str, card: str, cells: Sequence[str]) -> str:
    return "  ".join([f"{order:<5}", f"{card:<7}", *cells]).rstrip()


def _cell(step: Step, narrator: Narrator) -> str:
    text = f"{step.label}, {_counted(step.attempts)}"
    return narrator.painted_state(f"{text:<{WIDTH}}", step.state)


def _counted(attempts: int) -> str:
    return f"{attempts} attempt" if attempts == 1 else f"{attempts} attempts"
