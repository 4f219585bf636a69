"""Events that wait to be published, and the lease of the relay that publishes them."""

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

#: What sending does not need.
_NOT_SENT = ("created_at", "due_at", "published_at", "error")

#: When it was sent, in seconds since 1970. A bare Field, which converts nothing.
_SECONDS = models.Func(
    models.F("sent_at"), template="date_part('epoch', %(expressions)s)", output_field=models.Field()
)


class OutboxQuerySet(models.QuerySet["OutboxEvent"]):
    """Verbs on many rows; each is one statement, but for publish_again()."""

    def ready(self, shard: int) -> OutboxQuerySet:
        """Return the rows to send, without the columns that sending does not need."""
        ready = self.filter(state=OutboxEvent.State.READY, shard=shard).order_by("id")
        return ready.defer(*_NOT_SENT)

    def claim(self, shard: int, after: int, limit: int) -> list[OutboxEvent]:
        """Return the next *limit* of these, past the row *after*; on PostgreSQL only."""
        # A relay reads thousands a second. Django's ways to load a time and JSON and to make a
        # row take three times as long as the query.
        names = [name for name in _columns() if name not in (*_NOT_SENT, "sent_at", "headers")]
        ready = self.ready(shard).filter(pk__gt=after).defer(None)
        found = ready.values_list(*names, _SECONDS, Cast("headers", models.TextField()))[:limit]
        # One for all of them: nothing in it is a row's own.
        state = ModelState()
        state.db, state.adding = self.db, False
        names += ["sent_at", "headers", "_state"]
        return [
            _loaded(names, (*plain, seconds and moment(seconds), decode(headers), state))
            for *plain, seconds, headers in found
        ]

    def refused(self, other_reason: str) -> OutboxQuerySet:
        """Return the rows that a broker did not take, and not for *other_reason*, so far."""
        coming = (OutboxEvent.State.READY, OutboxEvent.State.SCHEDULED)
        return self.filter(state__in=coming).exclude(error__in=("", other_reason))

    def highest_ready_shard(self) -> int:
        ready = self.filter(state=OutboxEvent.State.READY).order_by("-shard")
        return ready.values_list("shard", flat=True).first() or 0

    def promote_due(self, now: datetime) -> int:
        """Make scheduled rows ready whose time has come."""
        due = self.filter(state=OutboxEvent.State.SCHEDULED, due_at__lte=now)
        # Skipping what a transaction has locked: one that cancels an event and stays open would
        # stop the relay for everybody.
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
        """Give unroutable and failed rows another chance."""
        stuck = (OutboxEvent.State.UNROUTABLE, OutboxEvent.State.FAILED)
        now = int(timezone.now().timestamp() * 1000)
        return sum(self._ready_again(row, now) for row in self.filter(state__in=stuck))

    def _ready_again(self, row: OutboxEvent, now: int) -> int:
        # Due from now on: nobody has it, so no inbox may take it for too old to be a first copy.
        headers = {**row.headers, NOT_BEFORE: now}
        found = self.filter(pk=row.pk, state=row.state)
        return found.update(state=OutboxEvent.State.READY, error="", headers=headers)

    def cancel(self, message_id: str) -> int:
        """Take back a scheduled event; nothing happens if it is due, or on its way again."""
        # Only what nobody has been sent: a row that was held may lie in some queues already,
        # and an addressed one is a retry of an event that was delivered.
        waiting = self.filter(message_id=message_id, state=OutboxEvent.State.SCHEDULED)
        return waiting.filter(queue="", error="").update(state=OutboxEvent.State.CANCELLED)

    def _mark(self, ids: Sequence[int], state: str, **values: Any) -> int:
        return self.filter(id__any_of=ids).update(state=state, **values) if ids else 0


class OutboxEvent(MessageColumns):
    """An event on its way out, written in the transaction of the data it speaks of."""

    class State(models.TextChoices):
        SCHEDULED = "scheduled", _("scheduled")
        READY = "ready", _("ready")
        PUBLISHED = "published", _("published")
        UNROUTABLE = "unroutable", _("unroutable")
        FAILED = "failed", _("failed")
        CANCELLED = "cancelled", _("cancelled")

    state = models.CharField(_("state"), max_length=10, choices=State.choices, default=State.READY)
    version = models.PositiveIntegerField(_("version"), default=1)
    #: Set if the row is addressed: to this queue, and there to this subscription.
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
        # Every mark writes to each index that the row is in: few, and partial where they can be.
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
    # What is not among the names is deferred by its absence.
    row = OutboxEvent.__new__(OutboxEvent)
    row.__dict__ = dict(zip(names, values, strict=True))
    return row


class RelayLeaseQuerySet(models.QuerySet["RelayLease"]):
    """Taking and giving back the lease."""

    def acquire(self, holder: UUID, seconds: float) -> bool:
        """Take or renew the lease for *holder*; False while another holds it."""
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
    """One row: the relay that works, and until when if it does not come back."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    holder = models.UUIDField()
    expires_at = models.DateTimeField()

    objects = RelayLeaseQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.holder} until {self.expires_at:%H:%M:%S}"
