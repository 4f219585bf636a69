"""The outbox, and the lease of the relay that publishes it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import models, transaction
from django.db.models.base import ModelState
from django.db.models.functions import Cast
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from msgspec.json import decode

from django_eventbus.events.message import NOT_BEFORE, moment
from django_eventbus.events.text import storable
from django_eventbus.models.message_columns import MessageColumns, message_index

#: The columns that sending does not need.
_NOT_SENT = ("created_at", "due_at", "published_at", "error")

#: sent_at in seconds since 1970. The plain Field does not convert the value.
_SECONDS = models.Func(
    models.F("sent_at"), template="date_part('epoch', %(expressions)s)", output_field=models.Field()
)


class OutboxQuerySet(models.QuerySet["OutboxEvent"]):
    """Changes of many rows, each in one statement except publish_again()."""

    def ready(self, shard: int) -> OutboxQuerySet:
        """Return the rows to send, without the columns that sending does not need."""
        ready = self.filter(state=OutboxEvent.State.READY, shard=shard).order_by("id")
        return ready.defer(*_NOT_SENT)

    def claim(self, shard: int, after: int, limit: int) -> list[OutboxEvent]:
        """Return the next *limit* ready rows behind the row *after*; on PostgreSQL only."""
        # A relay reads thousands of rows per second. Loading them with Django takes three times as
        # long as the query.
        names = [name for name in _columns() if name not in (*_NOT_SENT, "sent_at", "headers")]
        ready = self.ready(shard).filter(pk__gt=after).defer(None)
        found = ready.values_list(*names, _SECONDS, Cast("headers", models.TextField()))[:limit]
        # All rows can share one ModelState, because none of its values differ.
        state = ModelState()
        state.db, state.adding = self.db, False
        names += ["sent_at", "headers", "_state"]
        return [
            _loaded(names, (*plain, seconds and moment(seconds), decode(headers), state))
            for *plain, seconds, headers in found
        ]

    def has_more_ready_than(self, number: int, shard: int, until: int) -> bool:
        """Whether more than *number* rows are ready up to the row *until*."""
        ready = self.filter(state=OutboxEvent.State.READY, shard=shard, pk__lte=until)
        return ready.order_by("id")[number : number + 1].exists()

    def refused(self, other_reason: str) -> OutboxQuerySet:
        """Return the ready rows that a broker refused for another reason than *other_reason*."""
        coming = (OutboxEvent.State.READY, OutboxEvent.State.SCHEDULED)
        return self.filter(state__in=coming).exclude(error__in=("", other_reason))

    def highest_ready_shard(self) -> int:
        ready = self.filter(state=OutboxEvent.State.READY).order_by("-shard")
        return ready.values_list("shard", flat=True).first() or 0

    def promote_due(self, now: datetime) -> int:
        """Make the scheduled rows ready that are due."""
        due = self.filter(state=OutboxEvent.State.SCHEDULED, due_at__lte=now)
        # Skip locked rows: a long transaction that cancels an event would block the relay.
        with transaction.atomic(using=self.db):
            free = due.select_for_update(skip_locked=True).order_by().values("pk")
            return self.filter(pk__in=free).update(state=OutboxEvent.State.READY)

    def mark_published(self, ids: Sequence[int]) -> int:
        return self._mark(ids, OutboxEvent.State.PUBLISHED, published_at=timezone.now(), error="")

    def mark_unroutable(self, ids: Sequence[int], reason: str) -> int:
        return self._mark(ids, OutboxEvent.State.UNROUTABLE, error=reason)

    def mark_failed(self, row_id: int, reason: str) -> int:
        return self._mark([row_id], OutboxEvent.State.FAILED, error=storable(reason, 2000))

    def hold(self, row_id: int, reason: str, until: datetime) -> int:
        error = storable(reason, 2000)
        return self._mark([row_id], OutboxEvent.State.SCHEDULED, error=error, due_at=until)

    def publish_again(self) -> int:
        """Make unroutable and failed rows ready again; return their number."""
        stuck = (OutboxEvent.State.UNROUTABLE, OutboxEvent.State.FAILED)
        now = int(timezone.now().timestamp() * 1000)
        return sum(self._ready_again(row, now) for row in self.filter(state__in=stuck))

    def _ready_again(self, row: OutboxEvent, now: int) -> int:
        # Set due_at to now: no consumer has the event yet, so no inbox may reject it as too old.
        headers = {**row.headers, NOT_BEFORE: now}
        found = self.filter(pk=row.pk, state=row.state)
        return found.update(state=OutboxEvent.State.READY, error="", headers=headers)

    def cancel(self, message_id: str) -> int:
        """Cancel a scheduled event that is not due; return the number of cancelled rows."""
        # Only rows that were never sent: a held row may already be in some queues, and an
        # addressed row is a retry of an event that was delivered.
        waiting = self.filter(message_id=message_id, state=OutboxEvent.State.SCHEDULED)
        return waiting.filter(queue="", error="").update(state=OutboxEvent.State.CANCELLED)

    def _mark(self, ids: Sequence[int], state: str, **values: Any) -> int:
        return self.filter(id__any_of=ids).update(state=state, **values) if ids else 0


class OutboxEvent(MessageColumns):
    """An event to publish, written in the transaction of the data that it is about."""

    class State(models.TextChoices):
        SCHEDULED = "scheduled", _("scheduled")
        READY = "ready", _("ready")
        PUBLISHED = "published", _("published")
        UNROUTABLE = "unroutable", _("unroutable")
        FAILED = "failed", _("failed")
        CANCELLED = "cancelled", _("cancelled")

    state = models.CharField(_("state"), max_length=10, choices=State.choices, default=State.READY)
    version = models.PositiveIntegerField(_("version"), default=1)
    #: If the row is addressed, the queue, and then the subscription.
    queue = models.CharField(_("queue"), max_length=255, blank=True)
    subscription = models.CharField(_("subscription"), max_length=255, blank=True)
    key = models.CharField(_("key"), max_length=255, blank=True)
    shard = models.PositiveSmallIntegerField(_("shard"), default=0)
    causation_id = models.CharField(_("causation id"), max_length=255, blank=True)
    created_at = models.DateTimeField(_("created at"), default=timezone.now)
    due_at = models.DateTimeField(_("due at"), null=True, blank=True)
    published_at = models.DateTimeField(_("published at"), null=True, blank=True)
    error = models.TextField(_("error"), blank=True)

    objects = OutboxQuerySet.as_manager()

    class Meta:
        verbose_name = _("outbox event")
        verbose_name_plural = _("outbox events")
        permissions = (
            ("publish_again_outboxevent", "Can publish outbox events again"),
            ("cancel_outboxevent", "Can cancel scheduled outbox events"),
        )
        # Each change of a row writes to its indexes, so there are few, and most are partial.
        indexes = (
            message_index("eventbus_outbox_message"),
            models.Index(
                fields=["causation_id"],
                condition=~models.Q(causation_id=""),
                name="eventbus_outbox_caused",
            ),
            models.Index(
                fields=["shard", "id"],
                condition=models.Q(state="ready"),
                name="eventbus_outbox_ready",
            ),
            models.Index(
                fields=["due_at"], condition=models.Q(state="scheduled"), name="eventbus_outbox_due"
            ),
            models.Index(
                fields=["state", "id"],
                condition=models.Q(state__in=["unroutable", "failed"]),
                name="eventbus_outbox_stuck",
            ),
        )

    def __str__(self) -> str:
        return f"{self.type} {self.message_id}"

    @property
    def is_addressed(self) -> bool:
        return bool(self.queue)


def _columns() -> list[str]:
    return [field.attname for field in OutboxEvent._meta.concrete_fields]


def _loaded(names: Sequence[str], values: Sequence[Any]) -> OutboxEvent:
    # Fields that are not in names are deferred, because they have no value.
    row = OutboxEvent.__new__(OutboxEvent)
    row.__dict__ = dict(zip(names, values, strict=True))
    return row


class RelayLeaseQuerySet(models.QuerySet["RelayLease"]):
    """Acquire and release the lease."""

    def acquire(self, holder: UUID, seconds: float) -> bool:
        """Acquire or renew the lease for *holder*; return False while another relay has it."""
        now = timezone.now()
        with transaction.atomic(using=self.db):
            lease, _ = self.get_or_create(id=1, defaults={"holder": holder, "expires_at": now})
            if lease.holder != holder and lease.expires_at > now:
                return False
            lease.holder, lease.expires_at = holder, now + timedelta(seconds=seconds)
            lease.save(using=self.db)
        return True

    def release(self, holder: UUID) -> None:
        self.filter(holder=holder).update(expires_at=timezone.now())


class RelayLease(models.Model):
    """A single row: the relay that may work, and the end of its lease."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    holder = models.UUIDField()
    expires_at = models.DateTimeField()

    objects = RelayLeaseQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.holder} until {self.expires_at:%H:%M:%S}"
