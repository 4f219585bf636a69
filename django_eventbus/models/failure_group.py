"""Failure groups: what people have decided about failures that are alike."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from django_eventbus.messages import storable
from django_eventbus.models.dead_letter import DeadLetter
from django_eventbus.time_bounds import require_within_calendar


class FailureGroup(models.Model):
    """
    Failures with one fingerprint: what they have in common, and what was decided about them.

    Written once, when the first of them is parked, and then by people only: how many there are,
    and since when, is asked of the dead letters.
    """

    class Status(models.TextChoices):
        NEW = "new", _("new")
        ACKNOWLEDGED = "acknowledged", _("acknowledged")
        #: Until ignored_until; then it counts as new again.
        IGNORED = "ignored", _("ignored")
        RESOLVED = "resolved", _("resolved")

    fingerprint = models.CharField(max_length=64, primary_key=True)
    kind = models.CharField(max_length=20)
    subscription = models.CharField(max_length=255, blank=True)
    error_type = models.CharField(max_length=255, blank=True)
    #: The project's own code that failed: module and function.
    place = models.CharField(max_length=255, blank=True)
    #: The error's words without what varies.
    title = models.TextField(blank=True)
    status = models.CharField(max_length=12, choices=Status.choices, default=Status.NEW)
    ignored_until = models.DateTimeField(null=True, blank=True)
    note = models.TextField(blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    changed_at = models.DateTimeField(null=True, blank=True)
    changed_by = models.CharField(max_length=255, blank=True)

    class Meta:
        verbose_name = _("failure group")
        verbose_name_plural = _("failure groups")

    def __str__(self) -> str:
        return f"{self.subscription} {self.error_type}: {self.title}"[:200]

    @property
    def kind_name(self) -> str:
        """The kind in the reader's language."""
        return str(dict(DeadLetter.Kind.choices).get(self.kind, self.kind))

    def status_at(self, now: datetime) -> str:
        """Return the status; what was ignored is new again when its time is over."""
        is_over = self.ignored_until is not None and self.ignored_until <= now
        return self.Status.NEW if self.status == self.Status.IGNORED and is_over else self.status

    def acknowledge(self, by: str, note: str) -> None:
        self._decide(self.Status.ACKNOWLEDGED, by, note)

    def ignore(self, until: datetime, by: str, note: str) -> None:
        require_within_calendar(until)
        self._decide(self.Status.IGNORED, by, note, until=until)

    def resolve(self, by: str, note: str) -> None:
        self._decide(self.Status.RESOLVED, by, note)

    def reopen(self, by: str, note: str) -> None:
        self._decide(self.Status.NEW, by, note)

    def _decide(self, status: str, by: str, note: str, until: datetime | None = None) -> None:
        values: dict[str, Any] = {
            "status": status,
            "ignored_until": until,
            "note": storable(note, 2000),
            "changed_at": timezone.now(),
            "changed_by": storable(by, 255),
        }
        for name, value in values.items():
            setattr(self, name, value)
        self.save(using=self._state.db, update_fields=list(values))
