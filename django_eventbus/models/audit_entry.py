"""The audit: who did what, when, why and to how many. Append-only."""

from __future__ import annotations

from typing import Any, NoReturn

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from django_eventbus.exceptions import AppendOnly


class AuditQuerySet(models.QuerySet["AuditEntry"]):
    """Entries can be added and read; nothing else."""

    def update(self, **values: Any) -> NoReturn:
        raise AppendOnly("The audit is append-only: an entry cannot be changed.")

    def delete(self) -> NoReturn:
        raise AppendOnly("The audit is append-only: an entry cannot be deleted.")


class AuditEntry(models.Model):
    """One thing that a person did, or that a plan of theirs came to."""

    at = models.DateTimeField(default=timezone.now)
    by = models.CharField(max_length=255, blank=True)
    verb = models.CharField(max_length=30)
    why = models.TextField(blank=True)
    #: The selection, as it stands in a URL; or the fingerprint of a group.
    filter = models.TextField(blank=True)
    count = models.PositiveIntegerField(default=0)
    # Not a foreign key: the entry outlives the plan.
    plan_id = models.BigIntegerField(null=True, blank=True)
    #: What came of it: counts by outcome.
    outcome = models.JSONField(default=dict, blank=True)

    objects = AuditQuerySet.as_manager()

    class Meta:
        verbose_name = _("audit entry")
        verbose_name_plural = _("audit")
        indexes = (
            models.Index(fields=["-at"], name="eventbus_audit_at"),
            models.Index(fields=["plan_id"], name="eventbus_audit_plan"),
        )

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M} {self.by}: {self.verb} {self.count}"

    def save(self, *args: Any, **options: Any) -> None:
        if not self._state.adding:
            raise AppendOnly("The audit is append-only: an entry cannot be changed.")
        super().save(*args, **options)

    def delete(self, *args: Any, **options: Any) -> NoReturn:
        raise AppendOnly("The audit is append-only: an entry cannot be deleted.")
