"""Orders."""

from __future__ import annotations

from decimal import Decimal

from django.db import models
from django.utils import timezone

from orders.cards import Card


class Item(models.TextChoices):
    TEAPOT = "teapot", "Teapot (24.90)"
    LANTERN = "lantern", "Lantern (39.00)"
    COMPASS = "compass", "Compass (12.50)"


PRICES = {
    Item.TEAPOT: Decimal("24.90"),
    Item.LANTERN: Decimal("39.00"),
    Item.COMPASS: Decimal("12.50"),
}


class Order(models.Model):
    """The order of a visitor."""

    item = models.CharField(max_length=20, choices=Item.choices, default=Item.TEAPOT)
    email = models.EmailField()
    card = models.CharField(max_length=20, choices=Card.choices, default=Card.GOOD)
    total = models.DecimalField(max_digits=8, decimal_places=2, editable=False)
    placed_at = models.DateTimeField(default=timezone.now, editable=False)
    #: The id of its OrderPlaced, which is also in the inbox and the dead letters.
    event_id = models.UUIDField(null=True, editable=False)

    class Meta:
        ordering = ("-pk",)

    def __str__(self) -> str:
        return f"order {self.pk}"
