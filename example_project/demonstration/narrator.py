"""Tell what happens as it happens, read from the tables of the event bus."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

from django_eventbus.models import Attempt, DeadLetter, InboxRecord, OutboxEvent

from orders.models import Order

COLOURS = {
    "handled": "32",
    "healed": "1;32",
    "retrying": "33",
    "re-driven": "36",
    "parked": "31",
    "given up": "31",
    "published": "2",
}

WATCHED = 10

#: What makes a fact the same fact, and the line that tells it.
Fact = tuple[tuple[object, ...], str]


class Narrator:
    """Prints each fact once, with the time, in colour on a terminal."""

    def __init__(self) -> None:
        self.has_colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        self._told: set[tuple[object, ...]] = set()

    def heading(self, text: str) -> None:
        print(f"\n{self.painted(text, '1')}", flush=True)

    def line(self, text: str) -> None:
        print(f"{datetime.now(UTC):%H:%M:%S}  {text}", flush=True)

    def painted(self, text: str, colour: str) -> str:
        return f"\033[{colour}m{text}\033[0m" if self.has_colour else text

    def painted_state(self, text: str, state: str) -> str:
        return self.painted(text, COLOURS.get(state, "0"))

    def tell_news(self) -> None:
        """Print what has happened since the last time."""
        for order in reversed(Order.objects.filter(event_id__isnull=False)[:WATCHED]):
            for identity, text in facts(order):
                if identity not in self._told:
                    self._told.add(identity)
                    self._tell(order, *identity[1:3], text)

    def _tell(self, order: Order, app: object, state: object, text: str) -> None:
        word = self.painted_state(f"{state!s:<9}", str(state))
        self.line(f"order {order.pk}  {app!s:<13}  {word}  {text}".rstrip())


def facts(order: Order) -> Iterator[Fact]:
    """Yield all that is known of an order, what happened first first."""
    of_order = {"message_id": str(order.event_id)}
    # Read what is written last first, so that no fact is seen without the ones before it.
    records = list(InboxRecord.objects.filter(**of_order, state__in=("handled", "skipped")))
    letters = list(DeadLetter.objects.filter(**of_order))
    failures = list(Attempt.objects.filter(**of_order).exclude(tier="").order_by("pk"))
    if OutboxEvent.objects.filter(**of_order, published_at__isnull=False).exists():
        yield (order.pk, "relay", "published"), "order.placed"
    for attempt in failures:
        yield _fact(order, attempt, "retrying", _retry(attempt), attempt.pk)
    for letter in letters:
        yield from _facts_of_letter(order, letter)
    parked = {letter.subscription for letter in letters}
    for record in records:
        if record.subscription not in parked:
            yield _fact(order, record, record.state, f"on attempt {record.attempt}")


def _facts_of_letter(order: Order, letter: DeadLetter) -> Iterator[Fact]:
    if letter.redriven_at:
        text = f"to {letter.queue} only, by {letter.redriven_by}, round {letter.round}"
        yield _fact(order, letter, "re-driven", text, letter.round)
    if letter.state == DeadLetter.State.OPEN:
        state = "given up" if letter.kind == DeadLetter.Kind.GIVEN_UP else "parked"
        text = f"on attempt {letter.attempts}: {letter.error_type}: {letter.error}"
        yield _fact(order, letter, state, text, letter.round)
    if letter.is_closed:
        yield _fact(order, letter, letter.state, f"in round {letter.round}", letter.round)


def _retry(attempt: Attempt) -> str:
    error = f"{attempt.error_type}: {attempt.error}"
    return f"attempt {attempt.attempt} failed, again in {attempt.tier}: {error}"


def _fact(
    order: Order, row: Attempt | DeadLetter | InboxRecord, state: str, text: str, *more: object
) -> Fact:
    return (order.pk, row.subscription.partition(".")[0], state, *more), text
