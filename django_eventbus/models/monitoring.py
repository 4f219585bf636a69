"""Workers, outages, throughput and queue levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_eventbus.events.message import uuid7

_MEASURED = (
    "service", "messages", "consumers", "tiers", "dlq", "dlq_messages", "is_collected",
    "measured_at", "trouble",
)  # fmt: skip
#: The columns of counts.
COUNTED = ("published", "handled", "retried", "parked")
Counts = Mapping[str, int]
#: Seconds between two heartbeats.
BEAT = 5.0
#: Seconds without a heartbeat after which a worker counts as dead: six heartbeats.
SILENCE = timedelta(seconds=BEAT * 6)


class OutageQuerySet(models.QuerySet["Outage"]):
    """Write the outages that a worker has recorded in memory."""

    def write(self, outages: Sequence[Outage]) -> None:
        """Insert each outage, or update its end if the row exists."""
        self.bulk_create(
            outages, update_conflicts=True, unique_fields=["id"], update_fields=["ended_at"]
        )


class Outage(models.Model):
    """A time in which a worker waited for a broker or a database."""

    class Kind(models.TextChoices):
        CONNECTION = "connection", _("connection")
        CHANNEL = "channel", _("channel")
        IO = "io", _("no answer in time")
        SETUP = "setup", _("declaring queues")
        BLOCKED = "blocked", _("blocked")
        REFUSED = "refused", _("refused")
        DATABASE = "database", _("database")
        #: The outcome of a message could not be recorded.
        RECORDING = "recording", _("recording")
        UNKNOWN = "unknown", _("unknown")

    class Part(models.TextChoices):
        RELAY = "relay", _("relay")
        CONSUMER = "consumer", _("consumer")
        #: The declaration of queues at the start of a worker.
        TRANSPORT = "transport", _("transport")
        #: A worker before its first query.
        COMMAND = "command", _("command")

    id = models.UUIDField(_("id"), primary_key=True, default=uuid7, editable=False)
    worker_id = models.UUIDField(_("worker id"))
    host = models.CharField(_("host"), max_length=255)
    #: The part that waited, for example "relay".
    part = models.CharField(_("part"), max_length=40, choices=Part.choices)
    kind = models.CharField(_("kind"), max_length=20, choices=Kind.choices)
    began_at = models.DateTimeField(_("began at"))
    #: None during the outage. It stays None if the worker was killed during the outage.
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


class QueueQuerySet(models.QuerySet["Queue"]):
    """Write the results of measurements."""

    def measured(self, rows: Sequence[Mapping[str, Any]], *, service: str, now: datetime) -> None:
        """Write *rows*, which were measured *now*."""
        queues = [Queue(service=service, measured_at=now, trouble="", **row) for row in rows]
        self.bulk_create(
            queues, update_conflicts=True, unique_fields=["name"], update_fields=list(_MEASURED)
        )

    def not_measured(self, names: Sequence[str], *, service: str, trouble: str) -> None:
        """Record why the queues *names* were not measured. Their old figures stay."""
        queues = [Queue(name=name, service=service, trouble=trouble[:255]) for name in names]
        self.bulk_create(
            queues, update_conflicts=True, unique_fields=["name"], update_fields=["trouble"]
        )


class Queue(models.Model):
    """The last measurement of a queue with its tiers and its DLQ."""

    name = models.CharField(_("name"), max_length=255, primary_key=True)
    service = models.CharField(_("service"), max_length=255)
    #: The number of messages that wait. None if the queue does not exist.
    messages = models.PositiveBigIntegerField(_("messages"), null=True, blank=True)
    #: None if the transport does not know the number.
    consumers = models.PositiveIntegerField(_("consumers"), null=True, blank=True)
    #: The number of waiting messages by the label of the delay.
    tiers = models.JSONField(_("tiers"), default=dict, blank=True)
    #: The DLQ on the broker; "" if dead letters are only in the database.
    dlq = models.CharField(_("dlq"), max_length=255, blank=True)
    dlq_messages = models.PositiveBigIntegerField(_("dlq messages"), null=True, blank=True)
    #: Whether consumers turn messages in the DLQ into dead letters.
    is_collected = models.BooleanField(_("is collected"), default=False)
    measured_at = models.DateTimeField(_("measured at"), null=True, blank=True)
    #: Why later measurements failed.
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


class ThroughputQuerySet(models.QuerySet["Throughput"]):
    """Write the counts of a worker, and read the sums over all workers."""

    def write(self, worker_id: UUID, minutes: Mapping[datetime, Counts]) -> None:
        """Write the counts of *worker_id* for each of *minutes* in one statement."""
        # Totals, not increments: they are correct even if they are written twice.
        rows = [
            Throughput(worker_id=worker_id, minute=minute, **counts)
            for minute, counts in minutes.items()
        ]
        self.bulk_create(
            rows,
            update_conflicts=True,
            unique_fields=["worker_id", "minute"],
            update_fields=list(COUNTED),
        )

    def by_minute(self, since: datetime) -> dict[datetime, dict[str, int]]:
        """Return the sums over all workers for each minute with counts."""
        sums = {f"sum_{name}": models.Sum(name) for name in COUNTED}
        rows = self.filter(minute__gte=since).order_by("minute").values_list("minute")
        return {
            minute: dict(zip(COUNTED, counts, strict=True))
            for minute, *counts in rows.annotate(**sums)
        }


class Throughput(models.Model):
    """The counts of one worker for one minute."""

    # One row per worker, written outside the transactions of messages, so that none waits for it.
    worker_id = models.UUIDField()
    minute = models.DateTimeField()
    published = models.PositiveIntegerField(default=0)
    handled = models.PositiveIntegerField(default=0)
    retried = models.PositiveIntegerField(default=0)
    parked = models.PositiveIntegerField(default=0)

    objects = ThroughputQuerySet.as_manager()

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=["worker_id", "minute"], name="eventbus_throughput_once"
            ),
        )
        indexes = (models.Index(fields=["minute"], name="eventbus_throughput_minute"),)

    def __str__(self) -> str:
        return f"{self.minute:%H:%M} of {self.worker_id}"


def soon() -> datetime:
    return timezone.now() + SILENCE


class WorkerQuerySet(models.QuerySet["Worker"]):
    """Queries about workers."""

    def live(self, now: datetime) -> WorkerQuerySet:
        return self.filter(expected_at__gte=now)

    def relays(self, now: datetime) -> WorkerQuerySet:
        """Return the live workers that relay. They also run plans."""
        return self.live(now).exclude(kind=Worker.Kind.CONSUMER)

    def write(self, worker: Worker) -> None:
        """Insert or update the row. Processes that take turns share a row."""
        kept = ("id", "started_at")
        columns = [field.name for field in Worker._meta.concrete_fields if field.name not in kept]
        self.bulk_create(
            [worker], update_conflicts=True, unique_fields=["id"], update_fields=columns
        )

    def is_first(self, worker: Worker, now: datetime) -> bool:
        """Whether *worker* does the tasks of its service that only one process should do."""
        peers = self.live(now).filter(service=worker.service)
        # Workers without an outage come first, because they can reach the broker. Then consumers
        # come before relays, which may not have the permission to read queues.
        first = peers.order_by("outage", "kind", "id").values_list("pk", flat=True).first()
        return first in (None, worker.pk)


class Worker(models.Model):
    """A process that relays or consumes. It writes its row every few seconds until it stops."""

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
    #: The full names of the queues that it consumes.
    queues = models.JSONField(_("queues"), default=list, blank=True)
    started_at = models.DateTimeField(_("started at"), default=timezone.now)
    seen_at = models.DateTimeField(_("seen at"), default=timezone.now)
    #: Without a heartbeat until this time, it counts as dead.
    expected_at = models.DateTimeField(_("expected at"), default=soon)
    #: The kind of the current outage; "" if there is none.
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
