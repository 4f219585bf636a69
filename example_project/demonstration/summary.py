"""The tables at the end of the demo."""

from __future__ import annotations

from collections.abc import Sequence

from django_eventbus import registry
from django_eventbus.models import Attempt, InboxRecord

from demonstration.narrator import Narrator
from orders.events import OrderPlaced
from orders.models import Order
from orders.progress import Progress, Step, subscription_names
from stock.models import StockItem

WIDTH = 19


def print_summary(orders: Sequence[Order], narrator: Narrator) -> None:
    print_orders(orders, narrator)
    print()
    print_others()
    print()
    for stock in StockItem.objects.all():
        lines = ", ".join(str(line.left) for line in stock.ledger.all())
        print(f"The ledger of {stock}: {lines}", flush=True)


def print_orders(orders: Sequence[Order], narrator: Narrator) -> None:
    """Print a row per order and a column per subscription to OrderPlaced."""
    progress = Progress(orders)
    names = subscription_names()
    print(_row("order", "card", [f"{name.partition('.')[0]:<{WIDTH}}" for name in names]))
    print(_row("-" * 5, "-" * 7, ["-" * WIDTH for _ in names]))
    for order in orders:
        cells = [_cell(step, narrator) for step in progress.of(order)]
        print(_row(str(order.pk), order.card, cells))


def print_others() -> None:
    """Print a row for each other subscription."""
    print(f"{'event or command':<16}  {'subscription':<25}  handled  attempts")
    print(f"{'-' * 16}  {'-' * 25}  -------  --------")
    for subscription in registry:
        if subscription.event_class is not OrderPlaced:
            handled, attempts = _counts(subscription.name)
            print(
                f"{subscription.pattern:<16}  {subscription.name:<25}  {handled:>7}  {attempts:>8}"
            )


def counted(attempts: int) -> str:
    return f"{attempts} attempt" if attempts == 1 else f"{attempts} attempts"


def _counts(name: str) -> tuple[int, int]:
    own = {"subscription": name}
    handled = InboxRecord.objects.filter(**own, state=InboxRecord.State.HANDLED).count()
    return handled, handled + Attempt.objects.filter(**own).count()


def _row(order: str, card: str, cells: Sequence[str]) -> str:
    return "  ".join([f"{order:<5}", f"{card:<7}", *cells]).rstrip()


def _cell(step: Step, narrator: Narrator) -> str:
    text = f"{step.label}, {counted(step.attempts)}"
    return narrator.painted_state(f"{text:<{WIDTH}}", step.state)
