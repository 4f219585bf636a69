"""Invoices, and the state of the payment provider for Lunar cards."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from orders.models import Order


class Invoice(models.Model):
    """The effect of billing, without a unique constraint: a second effect would show."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="invoices")
    total = models.DecimalField(max_digits=8, decimal_places=2)
    charged_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"invoice {self.pk} for {self.order}"


class PaymentProvider(models.Model):
    """A switch: while the provider is down, its cards cannot be charged."""

    name = models.CharField(max_length=50, unique=True)
    is_up = models.BooleanField(default=True)

    def __str__(self) -> str:
        return self.name
