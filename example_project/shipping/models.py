"""Shipments."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from orders.models import Order


class Shipment(models.Model):
    """The effect of shipping. Nothing is unique here: a second effect would show."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="shipments")
    item = models.CharField(max_length=20)
    packed_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"shipment {self.pk} for {self.order}"
