"""Shipments."""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from django_eventbus import send_command

from orders.models import Order
from shipping.events import PickUpParcel


class Shipment(models.Model):
    """The effect of shipping, without a unique constraint: a second effect would show."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="shipments")
    item = models.CharField(max_length=20)
    packed_at = models.DateTimeField(default=timezone.now)
    picked_up_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"shipment {self.pk} for {self.order}"

    def call_carrier(self) -> None:
        """Send the command to pick up the parcel, which another process handles."""
        send_command(PickUpParcel(order_id=self.order_id), key=self.order_id)
