"""What a handler writes."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class Entry(models.Model):
    """The one INSERT of a handler. The server's clock tells when; nothing is unique here."""

    event_id = models.TextField()
    at = models.DateTimeField(db_default=Now())


class Seen(models.Model):
    """What a careful Celery task keeps, so that a task delivered twice takes effect once."""

    event_id = models.TextField(unique=True)
