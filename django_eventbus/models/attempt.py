"""Attempts that failed."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class Attempt(models.Model):
    """One failed run of a handler. A first-try success leaves no row here."""

    subscription = models.CharField(max_length=255)
    message_id = models.CharField(max_length=255)
    round = models.PositiveIntegerField()
    attempt = models.PositiveIntegerField()
    started_at = models.DateTimeField()
    #: Seconds.
    duration = models.FloatField()
    host = models.CharField(max_length=255)
    #: The tier it waits in next, as a label like "5m"; "" if it was the last.
    tier = models.CharField(max_length=20, blank=True)
    error_type = models.CharField(max_length=255)
    error = models.TextField(blank=True)
    traceback = models.TextField(blank=True)

    class Meta:
        verbose_name = _("attempt")
        verbose_name_plural = _("attempts")
        indexes = (
            models.Index(fields=["message_id", "subscription"], name="eventbus_attempt_message"),
        )

    def __str__(self) -> str:
        return (
            f"{self.subscription} attempt {self.attempt} of round {self.round}: {self.error_type}"
        )
