"""Notifications."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from orders.models import Order


class Notification(models.Model):
    """The effect of notifications, without a unique constraint: a second effect would show."""

    class Subject(models.TextChoices):
        THANKS = "thanks", "Thank you for your order"
        SHIPPED = "shipped", "Your order is on its way"
        OPINION = "opinion", "How was it?"

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="notifications")
    email = models.EmailField()
    subject = models.CharField(max_length=20, choices=Subject.choices)
    written_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"{self.get_subject_display()} to {self.email}"
