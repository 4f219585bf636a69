"""The tables of the database transport: bindings and queued messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, models, transaction
from django.utils import timezone
from msgspec.structs import replace

from django_eventbus.events.message import Message, uuid7
from django_eventbus.events.text import storable
from django_eventbus.models.message_columns import MessageColumns, message_columns

#: The type of the row that marks a reply box as open, and the maximum time for which it is open.
_BOX = "system.box"
_BOX_LIFE = timedelta(hours=1)


class BindingQuerySet(models.QuerySet["Binding"]):
    """Bindings are written by consumers and relays when they start."""

    def bind(self, exchange: str, queue: str, patterns: Iterable[str]) -> None:
        """Bind *queue* to *exchange* by *patterns* too."""
        # Old bindings are not removed: during a deploy, an old process that starts again would
        # remove the bindings of a new one.
        self.bulk_create(
            [Binding(exchange=exchange, queue=queue, pattern=each) for each in sorted(patterns)],
            ignore_conflicts=True,
        )


class Binding(models.Model):
    """A queue receives the messages of an exchange that match a pattern."""

    exchange = models.CharField(max_length=255)
    queue = models.CharField(max_length=255)
    pattern = models.CharField(max_length=255)

    objects = BindingQuerySet.as_manager()

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=["exchange", "queue", "pattern"], name="eventbus_binding_once"
            ),
        )

    def __str__(self) -> str:
        return f"{self.exchange} → {self.queue} by {self.pattern}"


class QueuedMessageQuerySet(models.QuerySet["QueuedMessage"]):
    """Lease messages. A lease is a token, and a time until which other processes skip the row."""

    def due(self, queues: Sequence[str], now: datetime) -> QueuedMessageQuerySet:
        return self.filter(queue__in=queues, available_at__lte=now)

    def lease(self, queue: str, seconds: float) -> QueuedMessage | None:
        """Lease the next due message, and skip rows that other processes are leasing now."""
        with transaction.atomic(using=self.db):
            due = self.due([queue], timezone.now()).order_by("available_at", "id")
            found = due.select_for_update(skip_locked=True).first()
            if found:
                found.leased(seconds)
        return found

    def lease_first(self, queue: str, seconds: float) -> QueuedMessage | None:
        """Lease the oldest message in the queue, or return None while it is leased."""
        with transaction.atomic(using=self.db):
            # Wait for the lock instead of skipping the row: the second message must not be first.
            found = self.filter(queue=queue).order_by("id").select_for_update().first()
            if found is None or found.available_at > timezone.now():
                return None
            found.leased(seconds)
        return found

    def renew(self, tokens: Sequence[UUID], seconds: float) -> int:
        until = timezone.now() + timedelta(seconds=seconds)
        return self.filter(token__in=tokens).update(available_at=until)

    def put(self, placed: Iterable[tuple[str, Message, datetime]]) -> None:
        """Put each message into its queue, where it is available from the given time on."""
        self.bulk_create(
            QueuedMessage(
                queue=queue,
                available_at=available_at,
                reply_to=storable(message.reply_to, 255),
                **message_columns(message),
            )
            for queue, message, available_at in placed
        )

    def open_box(self, name: str) -> None:
        """Open the queue *name* for answers, and delete the leftovers of killed processes."""
        now = timezone.now()
        abandoned = self.filter(type=_BOX, created_at__lt=now - _BOX_LIFE)
        for box in list(abandoned.values_list("queue", flat=True)):
            self.close_box(box)
        self.create(queue=name, type=_BOX, body=b"", available_at=now + _BOX_LIFE)

    def is_box_open(self, name: str) -> bool:
        """Whether the queue *name* is open for answers. It stays open until the commit."""
        return bool(self.select_for_update().filter(queue=name, type=_BOX))

    def close_box(self, name: str) -> None:
        with transaction.atomic(using=self.db):
            # The lock waits for a process that is just sending an answer, which is then deleted.
            self.is_box_open(name)
            self.filter(queue=name).delete()


class QueuedMessage(MessageColumns):
    """A message in a queue or, while it is not available yet, in one of its tiers."""

    queue = models.CharField(max_length=255)
    #: Until this time, it is in a tier or leased by a consumer.
    available_at = models.DateTimeField()
    token = models.UUIDField(null=True, db_index=True)
    deliveries = models.PositiveIntegerField(default=0)
    reply_to = models.CharField(max_length=255, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    objects = QueuedMessageQuerySet.as_manager()

    class Meta:
        indexes = (
            models.Index(fields=["queue", "available_at", "id"], name="eventbus_queued_due"),
        )

    def __str__(self) -> str:
        return f"{self.type} {self.message_id} in {self.queue}"

    def leased(self, seconds: float) -> None:
        self.token = uuid7()
        self.deliveries += 1
        self.available_at = timezone.now() + timedelta(seconds=seconds)
        columns = ["token", "deliveries", "available_at"]
        self.save(using=self._state.db, update_fields=columns)

    def message(self, **headers: Any) -> Message:
        message = super().message(**headers)
        return replace(message, reply_to=self.reply_to) if self.reply_to else message

    def ack(self) -> bool:
        """Remove the row if its lease is still valid."""
        # Not Django's delete(), which opens a transaction for the statement.
        return bool(self._mine()._raw_delete(self._state.db or DEFAULT_DB_ALIAS))

    def release(self, after: float) -> bool:
        """Make the row available again in *after* seconds if its lease is still valid."""
        available_at = timezone.now() + timedelta(seconds=after)
        return bool(self._mine().update(token=None, available_at=available_at))

    def _mine(self) -> QueuedMessageQuerySet:
        # With the token: after the lease expired, another process may have leased the row.
        objects = type(self).objects.using(self._state.db)
        return objects.filter(pk=self.pk, token=self.token)
