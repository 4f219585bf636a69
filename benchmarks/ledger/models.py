"""The table that the handlers write."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class Entry(models.Model):
    """The only INSERT of a handler, with the server's time. Without a unique constraint."""

    event_id = models.TextField()
    at = models.DateTimeField(db_default=Now())


class Seen(models.Model):
    """The records of a careful Celery task, so that a second delivery has no effect."""

    event_id = models.TextField(unique=True)
