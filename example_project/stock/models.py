"""The stock of each item, and the ledger of its changes."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from orders.models import Item


class StockItem(models.Model):
    item = models.CharField(max_length=20, choices=Item.choices, primary_key=True)
    left = models.PositiveIntegerField()

    def __str__(self) -> str:
        return self.item


class LedgerLine(models.Model):
    """The effect of the ledger, without a unique constraint: a second effect would show."""

    stock = models.ForeignKey(StockItem, on_delete=models.CASCADE, related_name="ledger")
    left = models.PositiveIntegerField()
    #: The difference to the previous line. It is wrong if the lines are not in order.
    change = models.IntegerField()
    written_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("pk",)

    def __str__(self) -> str:
        return f"{self.stock_id}: {self.change:+}, {self.left} left"
