"""Write a line to the ledger for each change of the stock, in the order of the changes."""

from __future__ import annotations

from django_eventbus import subscribe

from stock.events import StockChanged
from stock.models import LedgerLine

HUNDRED = 100


class CountedTwice(Exception):
    """The handler fails at the first attempt for multiples of a hundred."""


@subscribe(StockChanged, queue="ledger", ordered=True)
def write_line(event: StockChanged) -> None:
    if event.left == HUNDRED and event.meta.attempt == 1:
        raise CountedTwice("a full hundred is counted again")
    before = LedgerLine.objects.filter(stock_id=event.item).latest("pk")
    LedgerLine.objects.create(stock_id=event.item, left=event.left, change=event.left - before.left)
