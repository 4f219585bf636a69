"""The story: a good order, a flaky one, one that is parked and healed, one given up."""

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
from demonstration.outcome import Expected, print_summary, problems
from demonstration.processes import DemoFailed, Shop, reserved_port, running_shop
from demonstration.visitor import Visitor
from orders.cards import Card
from orders.models import Item, Order
from orders.progress import Progress

LOGIN = "demo"
PORT = 8000
TIME_LIMIT = 35
LOOK_EVERY = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    heading: str
    card: Card
    item: Item
    #: What billing has made of the order when the story is over.
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
    """Run the demo; raise DemoFailed if it does not come out as told."""
    refuse_broken_configuration()
    prepare_database()
    # A demo that ends by itself takes any port, so that several can run at once.
    reserved = reserved_port(PORT if stays_up else 0)
    with left_as_it_was(), reserved as port, running_shop(directory, port) as shop:
        story = Story(shop)
        story.tell()
        if stays_up:
            story.stay_up()


def refuse_broken_configuration() -> None:
    for problem in run_checks():
        if problem.is_serious():
            raise DemoFailed(f"{problem.id}: {problem.msg} {problem.hint or ''}".strip())


def prepare_database() -> None:
    call_command("migrate", verbosity=0)
    get_user_model().objects.create_superuser(LOGIN, "demo@example.com", LOGIN)


class Story:
    """What the demo does to a running shop, and what it says of it."""

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
        order = Order.objects.get(pk=number)
        self.wait_until(lambda: is_settled(order), f"{order} is not settled")
        return order

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
        self.wait_until(lambda: all(map(is_settled, orders)), "The re-drive is not settled")

    def check(self, orders: list[Order]) -> None:
        plan = [(order, stage.expected) for order, stage in zip(orders, STAGES, strict=True)]
        if found := list(problems(plan)):
            raise DemoFailed("\n".join(["It did not come out as it should:", *found]))
        print("\nChecked: one effect or one open dead letter per order and app, never both.")

    def stay_up(self) -> None:
        """Go on telling until Ctrl-C."""
        print(f"\nThe shop:   {self.shop.url} (place an order and watch it here)")
        print(f"The admin:  {self.admin}")
        print("Both are open to this machine only. Ctrl-C stops.\n", flush=True)
        with suppress(KeyboardInterrupt):
            while True:
                self.look()
        print("\nStopping.", flush=True)

    def wait_until(self, is_true: Callable[[], bool], complaint: str) -> None:
        """Tell the news until *is_true*, or raise DemoFailed with the *complaint*."""
        while not is_true():
            if time.monotonic() > self.deadline:
                raise DemoFailed(f"{complaint} after {TIME_LIMIT} s. {self.shop.tails}")
            self.look()
        self.narrator.tell_news()

    def look(self) -> None:
        self.shop.refuse_end()
        self.narrator.tell_news()
        time.sleep(LOOK_EVERY)


def is_settled(order: Order) -> bool:
    return all(step.is_settled for step in Progress([order]).of(order))


def parked_letters(orders: list[Order]) -> list[int]:
    """Return what a person would tick in the admin: what the provider's outage has parked."""
    ids = [str(order.event_id) for order in orders if order.card == Card.LUNAR]
    letters = DeadLetter.objects.redrivable().filter(message_id__in=ids)
    return list(letters.values_list("pk", flat=True))
