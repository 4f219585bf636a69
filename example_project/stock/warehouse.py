"""Take items from the stock, and add to it."""

from __future__ import annotations

from django.db import transaction

from stock.models import StockItem


@transaction.atomic
def add(item: str, quantity: int) -> StockItem:
    """Change what is left of *item*, and so publish StockChanged."""
    # Locked: events of one key keep the order in which their transactions took turns.
    stock = StockItem.objects.select_for_update().get(pk=item)
    stock.left += quantity
    stock.save()
    return stock


def take(item: str) -> StockItem:
    return add(item, -1)
