"""The events that the partner has received."""

from __future__ import annotations

from django.db import models
from django.utils import timezone


class PartnerEvent(models.Model):
    """An event at the partner. It is posted at least once, and stored once by its id."""

    event_id = models.UUIDField(primary_key=True)
    type = models.CharField(max_length=100)
    payload = models.JSONField()
    received_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"{self.type} {self.event_id}"
