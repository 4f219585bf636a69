"""Queues: how full their broker last had them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

_MEASURED = (
    "service", "messages", "consumers", "tiers", "dlq", "dlq_messages", "is_collected",
    "measured_at", "trouble",
)  # fmt: skip


class QueueQuerySet(models.QuerySet["Queue"]):
    """Writing what was measured."""

    def measured(self, rows: Sequence[Mapping[str, Any]], *, service: str, now: datetime) -> None:
        """Write *rows* as they are on the broker *now*."""
        queues = [Queue(service=service, measured_at=now, trouble="", **row) for row in rows]
        self.bulk_create(
            queues, update_conflicts=True, unique_fields=["name"], update_fields=list(_MEASURED)
        )

    def not_measured(self, names: Sequence[str], *, service: str, trouble: str) -> None:
        """Say of the queues *names* why they were not measured; their figures stay, and age."""
        queues = [Queue(name=name, service=service, trouble=trouble[:255]) for name in names]
        self.bulk_create(
            queues, update_conflicts=True, unique_fields=["name"], update_fields=["trouble"]
        )


class Queue(models.Model):
    """A queue of this project, with its tiers and its DLQ, as a worker last saw them."""

    name = models.CharField(_("name"), max_length=255, primary_key=True)
    service = models.CharField(_("service"), max_length=255)
    #: Waiting to be received. None: the broker does not have the queue.
    messages = models.PositiveBigIntegerField(_("messages"), null=True, blank=True)
    #: None where the transport does not know.
    consumers = models.PositiveIntegerField(_("consumers"), null=True, blank=True)
    #: The label of each delay, and how many messages wait there.
    tiers = models.JSONField(_("tiers"), default=dict, blank=True)
    #: The broker's DLQ; "" if dead letters go to the database alone.
    dlq = models.CharField(_("dlq"), max_length=255, blank=True)
    dlq_messages = models.PositiveBigIntegerField(_("dlq messages"), null=True, blank=True)
    #: Whether consumers turn what lies in the DLQ into dead letters.
    is_collected = models.BooleanField(_("is collected"), default=False)
    measured_at = models.DateTimeField(_("measured at"), null=True, blank=True)
    #: Why it could not be measured since then.
    trouble = models.CharField(_("trouble"), max_length=255, blank=True)
    created_at = models.DateTimeField(_("created at"), default=timezone.now)

    objects = QueueQuerySet.as_manager()

    class Meta:
        verbose_name = _("queue")
        verbose_name_plural = _("queues")

    def __str__(self) -> str:
        return self.name

    @property
    def in_tiers(self) -> int:
        return sum(count or 0 for count in self.tiers.values())
