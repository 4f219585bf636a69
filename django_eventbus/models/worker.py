"""Workers: the processes that relay and consume, as they were last heard of."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_eventbus.messages import uuid7
from django_eventbus.models.outage import Outage

#: Seconds between two heartbeats.
BEAT = 5.0
#: A worker that was not heard of for so long is taken for dead: six heartbeats.
SILENCE = timedelta(seconds=BEAT * 6)


def soon() -> datetime:
    return timezone.now() + SILENCE


class WorkerQuerySet(models.QuerySet["Worker"]):
    """Questions about many workers."""

    def live(self, now: datetime) -> WorkerQuerySet:
        return self.filter(expected_at__gte=now)

    def relays(self, now: datetime) -> WorkerQuerySet:
        """Return those that live and relay: they carry plans out."""
        return self.live(now).exclude(kind=Worker.Kind.CONSUMER)

    def write(self, worker: Worker) -> None:
        """Insert the row or change it: who takes turns shares one with others."""
        kept = ("id", "started_at")
        columns = [field.name for field in Worker._meta.concrete_fields if field.name not in kept]
        self.bulk_create(
            [worker], update_conflicts=True, unique_fields=["id"], update_fields=columns
        )

    def is_first(self, worker: Worker, now: datetime) -> bool:
        """Whether *worker* is the one of its service that does what one process is enough for."""
        peers = self.live(now).filter(service=worker.service)
        # Those without an outage come first: one that waits for a server cannot look at it.
        # Then those that consume, by their kind: a relay may lack the right to look at queues.
        first = peers.order_by("outage", "kind", "id").values_list("pk", flat=True).first()
        return first in (None, worker.pk)


class Worker(models.Model):
    """A process that relays or consumes. It writes its row every few seconds, and removes it."""

    class Kind(models.TextChoices):
        RELAY = "relay", _("relay")
        CONSUMER = "consumer", _("consumer")
        BOTH = "both", _("consumer with relay")

    #: In the order in which they started.
    id = models.UUIDField(_("id"), primary_key=True, default=uuid7, editable=False)
    kind = models.CharField(_("kind"), max_length=10, choices=Kind.choices)
    service = models.CharField(_("service"), max_length=255)
    host = models.CharField(_("host"), max_length=255)
    pid = models.PositiveIntegerField(_("pid"))
    version = models.CharField(_("version"), max_length=40)
    #: The full names of those it consumes.
    queues = models.JSONField(_("queues"), default=list, blank=True)
    started_at = models.DateTimeField(_("started at"), default=timezone.now)
    seen_at = models.DateTimeField(_("seen at"), default=timezone.now)
    #: If it is not heard of again by then, it is taken for dead.
    expected_at = models.DateTimeField(_("expected at"), default=soon)
    #: The kind of the outage that it waits to end; "" if there is none.
    outage = models.CharField(_("outage"), max_length=20, blank=True, choices=Outage.Kind.choices)
    outage_since = models.DateTimeField(_("outage since"), null=True, blank=True)
    is_stopping = models.BooleanField(_("is stopping"), default=False)

    objects = WorkerQuerySet.as_manager()

    class Meta:
        verbose_name = _("worker")
        verbose_name_plural = _("workers")
        indexes = (models.Index(fields=["seen_at"], name="eventbus_worker_seen"),)

    def __str__(self) -> str:
        words = {"kind": self.get_kind_display(), "pid": self.pid, "host": self.host}
        return gettext("%(kind)s %(pid)d on %(host)s") % words

    def is_live(self, now: datetime) -> bool:
        return self.expected_at >= now
