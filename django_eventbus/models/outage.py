"""Outages: when a worker could not reach a server."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_eventbus.messages import uuid7


class OutageQuerySet(models.QuerySet["Outage"]):
    """Writing what a worker remembers."""

    def write(self, outages: Sequence[Outage]) -> None:
        """Write each, or its end if it is there already."""
        self.bulk_create(
            outages, update_conflicts=True, unique_fields=["id"], update_fields=["ended_at"]
        )


class Outage(models.Model):
    """From when to when a worker waited for a broker or a database."""

    id = models.UUIDField(_("id"), primary_key=True, default=uuid7, editable=False)
    worker_id = models.UUIDField(_("worker id"))
    host = models.CharField(_("host"), max_length=255)
    #: Who waited, for instance "relay".
    part = models.CharField(_("part"), max_length=40)
    kind = models.CharField(_("kind"), max_length=20)
    began_at = models.DateTimeField(_("began at"))
    #: None while it lasts, and for ever if the worker was killed meanwhile.
    ended_at = models.DateTimeField(_("ended at"), null=True, blank=True)

    objects = OutageQuerySet.as_manager()

    class Meta:
        verbose_name = _("outage")
        verbose_name_plural = _("outages")
        indexes = (models.Index(fields=["began_at"], name="eventbus_outage_began"),)

    def __str__(self) -> str:
        return f"{self.kind} outage of the {self.part} on {self.host}"
