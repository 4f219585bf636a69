"""Notifications."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from orders.models import Order


class Notification(models.Model):
    """The effect of notifications. Nothing is unique here: a second effect would show."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="notifications")
    email = models.EmailField()
    subject = models.CharField(max_length=200)
    written_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"{self.subject} to {self.email}"
