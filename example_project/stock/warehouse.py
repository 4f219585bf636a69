"""Take items from the stock, and add to it."""

from __future__ import annotations

from django.db import transaction

from stock.models import StockItem


@transaction.atomic
def add(item: str, quantity: int) -> StockItem:
    """Change the stock of *item*, which publishes StockChanged."""
    # With a lock, the events of a key have the order of their transactions.
    stock = StockItem.objects.select_for_update().get(pk=item)
    stock.left += quantity
    stock.save()
    return stock


def take(item: str) -> StockItem:
    return add(item, -1)
