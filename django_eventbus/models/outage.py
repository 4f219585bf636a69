"""Outages: when a worker could not reach a server."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import models
from django.utils.translation import gettext
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

    class Kind(models.TextChoices):
        CONNECTION = "connection", _("connection")
        CHANNEL = "channel", _("channel")
        IO = "io", _("no answer in time")
        SETUP = "setup", _("declaring queues")
        BLOCKED = "blocked", _("blocked")
        REFUSED = "refused", _("refused")
        DATABASE = "database", _("database")
        UNKNOWN = "unknown", _("unknown")

    class Part(models.TextChoices):
        RELAY = "relay", _("relay")
        CONSUMER = "consumer", _("consumer")
        #: Who declares queues when a worker starts.
        TRANSPORT = "transport", _("transport")
        #: A worker before its first look at the database.
        COMMAND = "command", _("command")

    id = models.UUIDField(_("id"), primary_key=True, default=uuid7, editable=False)
    worker_id = models.UUIDField(_("worker id"))
    host = models.CharField(_("host"), max_length=255)
    #: Who waited, for instance "relay".
    part = models.CharField(_("part"), max_length=40, choices=Part.choices)
    kind = models.CharField(_("kind"), max_length=20, choices=Kind.choices)
    began_at = models.DateTimeField(_("began at"))
    #: None while it lasts, and for ever if the worker was killed meanwhile.
    ended_at = models.DateTimeField(_("ended at"), null=True, blank=True)

    objects = OutageQuerySet.as_manager()

    class Meta:
        verbose_name = _("outage")
        verbose_name_plural = _("outages")
        indexes = (models.Index(fields=["began_at"], name="eventbus_outage_began"),)

    def __str__(self) -> str:
        words = gettext("outage (%(kind)s) of the %(part)s on %(host)s")
        part = self.get_part_display()
        return words % {"kind": self.get_kind_display(), "part": part, "host": self.host}
