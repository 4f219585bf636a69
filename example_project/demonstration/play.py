"""The story of four orders, a parcel, and deliveries of teapots."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from django.contrib.auth import get_user_model
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import DEFAULT_DB_ALIAS
from django_eventbus.models import DeadLetter
from django_eventbus.redrive import redrive

from billing.models import PaymentProvider
from billing.payments import LUNAR
from demonstration.broker import left_as_it_was
from demonstration.narrator import Narrator
from demonstration.outcome import CHECKED, Expected, problems
from demonstration.processes import DemoFailed, Shop, reserved_port, running_shop
from demonstration.summary import print_summary
from demonstration.traffic import is_quiet
from demonstration.visitor import Visitor
from orders.cards import Card
from orders.models import Item, Order
from shipping.models import Shipment
from stock import warehouse
from stock.models import StockItem
from stock.subscribers import HUNDRED

LOGIN = "demo"
PORT = 8000
TIME_LIMIT = 60
LOOK_EVERY = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    heading: str
    card: Card
    item: Item
    #: The state of the order in billing at the end of the story.
    expected: Expected


STAGES = (
    Stage(
        heading="A good card: handled.",
        card=Card.GOOD,
        item=Item.TEAPOT,
        expected=Expected(state="handled", attempts=1),
    ),
    Stage(
        heading="A flaky card: billing is retried and then handled, the others do not wait.",
        card=Card.FLAKY,
        item=Item.LANTERN,
        expected=Expected(state="handled", attempts=3),
    ),
    Stage(
        heading="A card of a provider that is down: retried to the end and parked.",
        card=Card.LUNAR,
        item=Item.COMPASS,
        expected=Expected(state="healed", attempts=4),
    ),
    Stage(
        heading="An invalid card: given up at once and parked.",
        card=Card.INVALID,
        item=Item.TEAPOT,
        expected=Expected(state="parked", attempts=1),
    ),
)


def play(directory: Path, *, stays_up: bool) -> None:
    """Run the demo; raise DemoFailed if a result is not as expected."""
    require_valid_configuration()
    prepare_database()
    # A demo that ends by itself uses any free port, so that several can run at once.
    reserved = reserved_port(PORT if stays_up else 0)
    with left_as_it_was(), reserved as port, running_shop(directory, port) as shop:
        story = Story(shop)
        story.tell()
        if stays_up:
            story.stay_up()


def require_valid_configuration() -> None:
    for problem in run_checks():
        if problem.is_serious():
            raise DemoFailed(f"{problem.id}: {problem.msg} {problem.hint or ''}".strip())


def prepare_database() -> None:
    call_command("migrate", verbosity=0)
    get_user_model().objects.create_superuser(LOGIN, "demo@example.com", LOGIN)


class Story:
    """The actions of the demo in a running shop, and their explanations."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.visitor = Visitor(shop.url)
        self.narrator = Narrator()
        self.deadline = time.monotonic() + TIME_LIMIT

    @property
    def admin(self) -> str:
        return f"{self.shop.url}admin/ (user {LOGIN}, password {LOGIN})"

    def tell(self) -> None:
        self.open_shop()
        orders = [self.place_order(stage) for stage in STAGES]
        self.fix_provider(orders)
        self.hand_over(orders[0])
        self.fill_up(Item.TEAPOT)
        self.narrator.heading("Summary")
        print_summary(orders, self.narrator)
        self.check(orders)

    def open_shop(self) -> None:
        print("Times are UTC, as in the shop.")
        for process in self.shop.processes:
            self.narrator.line(f"Started {process.name} (process {process.pid}).")
        self.wait_until(self.visitor.is_served, "The page of the shop is not served")
        self.narrator.line(f"The shop is open at {self.shop.url}")
        self.narrator.line(f"The admin is at {self.admin}")

    def place_order(self, stage: Stage) -> Order:
        self.narrator.heading(stage.heading)
        number = self.filled_in(item=stage.item, email="ada@example.com", card=stage.card)
        self.narrator.line(f"order {number}  placed on the page: {stage.item}, {stage.card} card")
        self.wait_until(is_quiet, f"order {number} is not settled")
        return Order.objects.get(pk=number)

    def filled_in(self, **fields: str) -> int:
        try:
            return self.visitor.place_order(**fields)
        except OSError as error:
            self.shop.refuse_end()
            raise DemoFailed(f"The shop did not answer: {error}\n{self.shop.tails}") from error

    def fix_provider(self, orders: list[Order]) -> None:
        self.narrator.heading("The provider is fixed: re-driven and healed.")
        PaymentProvider.objects.filter(name=LUNAR).update(is_up=True)
        self.narrator.line(f"{LUNAR} is up again.")
        redrive(parked_letters(orders), by=LOGIN, using=DEFAULT_DB_ALIAS)
        self.wait_until(is_quiet, "The re-drive is not settled")

    def hand_over(self, order: Order) -> None:
        self.narrator.heading(
            f"The parcel of {order} leaves: a command, a signal, HTTP, and a delayed event.",
            "The command parcel.pick_up goes to one queue, whose handler sends a signal.",
            "The signal's receiver in notifications gets it as the event order.shipped.",
            "The same event is posted to a partner, who answers 503 at first.",
            "An event for later asks how it was: two seconds from then, and not before.",
        )
        Shipment.objects.get(order=order).call_carrier()
        self.narrator.line(f"{order}  the carrier is called")
        self.wait_until(is_quiet, f"The parcel of {order} is not settled")

    def fill_up(self, item: Item) -> None:
        self.narrator.heading(
            f"Three deliveries of the {item}: changes of a model, handled in order.",
            "To save a StockItem publishes stock.changed.",
            "The ledger's subscription is ordered: while a line is tried again, the next ones wait.",
        )
        missing = HUNDRED - StockItem.objects.get(pk=item).left
        left = [warehouse.add(item, quantity).left for quantity in (missing, 20, 5)]
        self.narrator.line(f"{item}  now {left[0]} are left, then {left[1]}, then {left[2]}")
        self.wait_until(is_quiet, f"The stock of the {item} is not settled")

    def check(self, orders: list[Order]) -> None:
        plan = [(order, stage.expected) for order, stage in zip(orders, STAGES, strict=True)]
        if found := list(problems(plan, shipped=orders[0])):
            raise DemoFailed("\n".join(["It did not come out as it should:", *found]))
        print()
        for each in CHECKED:
            print(f"Checked: {each}", flush=True)

    def stay_up(self) -> None:
        """Continue to print news until Ctrl-C."""
        print(f"\nThe shop:       {self.shop.url} (place an order and watch it here)")
        print(f"The admin:      {self.admin}")
        print(f"The dashboard:  {self.shop.url}admin/eventbus/ (does anything need doing?)")
        print("In the admin, re-drive a dead letter, call the carrier for a shipment,")
        print("or change what is left in the stock: all of it is told here.")
        print("They are open to this machine only. Ctrl-C stops.\n", flush=True)
        with suppress(KeyboardInterrupt):
            while True:
                self.look()
        print("\nStopping.", flush=True)

    def wait_until(self, is_true: Callable[[], bool], complaint: str) -> None:
        """Print news until *is_true*; after a time limit, raise DemoFailed with the *complaint*."""
        while not is_true():
            if time.monotonic() > self.deadline:
                raise DemoFailed(f"{complaint} after {TIME_LIMIT} s. {self.shop.tails}")
            self.look()
        self.narrator.tell_news()

    def look(self) -> None:
        self.shop.refuse_end()
        self.narrator.tell_news()
        time.sleep(LOOK_EVERY)


def parked_letters(orders: list[Order]) -> list[int]:
    """Return the dead letters that the provider's outage caused, as a person would select them."""
    ids = [str(order.event_id) for order in orders if order.card == Card.LUNAR]
    letters = DeadLetter.objects.redrivable().filter(message_id__in=ids)
    return list(letters.values_list("pk", flat=True))
