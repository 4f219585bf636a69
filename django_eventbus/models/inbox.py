"""The inbox: the outcome of each message, its attempts, and the mark of pruning."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta

from django.db import OperationalError, connections, models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from msgspec.structs import replace

from django_eventbus.events.message import RETRY_COUNT, Message, moment
from django_eventbus.events.text import storable
from django_eventbus.exceptions import Busy, TooOld
from django_eventbus.models.message_columns import message_index
from django_eventbus.models.reasons import SkipReason
from django_eventbus.subscriptions.outcomes import Duplicate

_COLUMNS = (
    "subscription", "message_id", "queue", "type", "source", "sent_at", "state",
    "round", "attempt", "started", "created_at", "settled_at", "error", "skip_reason",
)  # fmt: skip


class Attempt(models.Model):
    """One failed run of a handler. A run without an error has no row."""

    subscription = models.CharField(max_length=255)
    message_id = models.CharField(max_length=255)
    round = models.PositiveIntegerField()
    attempt = models.PositiveIntegerField()
    started_at = models.DateTimeField()
    #: Seconds.
    duration = models.FloatField()
    host = models.CharField(max_length=255)
    #: The tier in which the message waits next, such as "5m"; "" after the last attempt.
    tier = models.CharField(max_length=20, blank=True)
    error_type = models.CharField(max_length=255)
    error = models.TextField(blank=True)
    traceback = models.TextField(blank=True)

    class Meta:
        verbose_name = _("attempt")
        verbose_name_plural = _("attempts")
        indexes = (
            models.Index(fields=["message_id", "subscription"], name="eventbus_attempt_message"),
        )

    def __str__(self) -> str:
        return (
            f"{self.subscription} attempt {self.attempt} of round {self.round}: {self.error_type}"
        )


class InboxMarkQuerySet(models.QuerySet["InboxMark"]):
    """Read the mark, and move it forward only."""

    def before(self) -> datetime | None:
        """Return the time before which records may have been pruned, or None if none were."""
        return self.values_list("forgets_before", flat=True).first()

    def raise_if_older(self, sent_at: datetime) -> None:
        """Raise TooOld if the record of a message with this time may have been pruned."""
        mark = self.before()
        if mark and sent_at < mark:
            raise TooOld(
                f"the message was sent {sent_at:%Y-%m-%d %H:%M}, and the inbox was pruned up to "
                f"{mark:%Y-%m-%d %H:%M}: it may have been handled already"
            )

    def advance(self, cutoff: datetime) -> None:
        self.get_or_create(id=1, defaults={"forgets_before": cutoff})
        self.filter(id=1, forgets_before__lt=cutoff).update(forgets_before=cutoff)


class InboxMark(models.Model):
    """A single row: settled inbox records before this time may have been pruned."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    forgets_before = models.DateTimeField()

    objects = InboxMarkQuerySet.as_manager()

    def __str__(self) -> str:
        return f"forgets before {self.forgets_before:%Y-%m-%d %H:%M}"


class InboxQuerySet(models.QuerySet["InboxRecord"]):
    """Find or claim the record of a message for one subscription."""

    def known(self, subscription: str, message_id: str) -> InboxRecord | None:
        found = self.filter(subscription=subscription, message_id=message_id)
        # Not first(), which sorts. There is at most one record.
        return next(iter(found[:1]), None)

    def as_next_attempt(self, subscription: str, message: Message) -> Duplicate | Message:
        """Return the ordered *message* as its next attempt, or a Duplicate with the time of it."""
        record = self.known(subscription, message.id)
        return record.next_attempt(message) if record else message

    def claim(self, subscription: str, queue: str, message: Message, state: str) -> InboxRecord:
        """
        Insert the record in *state*, or lock the existing one. In a transaction only.

        Raise Busy, without waiting, while another worker holds the same message.
        """
        # A retry or a re-drive nearly always has a record, so do not try to insert first.
        # On SQLite always insert first, because only a write locks out other writers.
        can_lock = connections[self.db].features.has_select_for_update
        if can_lock and not message.is_first and (record := self._locked(subscription, message)):
            return record
        if record_id := self._insert(subscription, queue, message, state):
            return self._made(record_id, subscription, queue, message, state)
        if record := self._locked(subscription, message):
            return record
        raise _busy(message)

    def _insert(self, subscription: str, queue: str, message: Message, state: str) -> int | None:
        connection = connections[self.db]
        now = connection.ops.adapt_datetimefield_value(timezone.now())
        sent_at = message.sent_at and connection.ops.adapt_datetimefield_value(message.sent_at)
        values = (
            subscription, message.id, queue, message.type, storable(message.source, 255), sent_at,
            state, message.round, message.attempt, 0, now, now, "", "",
        )  # fmt: skip
        # ON CONFLICT would wait for another transaction with the same key until its handler
        # ends. The advisory lock in the same statement prevents the wait.
        lock = "pg_try_advisory_xact_lock(%s)" if connection.vendor == "postgresql" else "%s <> 0"
        sql = (
            f"INSERT INTO {self.model._meta.db_table} ({', '.join(_COLUMNS)}) "
            f"SELECT {', '.join(['%s'] * len(values))} WHERE {lock} "
            "ON CONFLICT (subscription, message_id) DO NOTHING RETURNING id"
        )
        with connection.cursor() as cursor:
            cursor.execute(sql, [*values, _lock_key(subscription, message.id)])
            row = cursor.fetchone()
        return row[0] if row else None

    def _made(
        self, record_id: int, subscription: str, queue: str, message: Message, state: str
    ) -> InboxRecord:
        record = InboxRecord(
            id=record_id,
            subscription=subscription,
            message_id=message.id,
            queue=queue,
            type=message.type,
            source=message.source,
            state=state,
            round=message.round,
            attempt=message.attempt,
        )
        record._state.adding, record._state.db = False, self.db
        record.is_new = True
        return record

    def _locked(self, subscription: str, message: Message) -> InboxRecord | None:
        try:
            return self.select_for_update(nowait=True).known(subscription, message.id)
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", "") != "55P03":
                raise
            raise _busy(message) from None


class InboxRecord(models.Model):
    """The state of one message for one subscription, so that it is handled only once."""

    class State(models.TextChoices):
        #: The handler was started on a redelivered message, and its end is not recorded.
        STARTED = "started", _("started")
        RETRYING = "retrying", _("retrying")
        DEFERRED = "deferred", _("deferred")
        HANDLED = "handled", _("handled")
        SKIPPED = "skipped", _("skipped")
        PARKED = "parked", _("parked")

    subscription = models.CharField(_("subscription"), max_length=255)
    message_id = models.CharField(_("message id"), max_length=255)
    queue = models.CharField(_("queue"), max_length=255)
    type = models.CharField(_("type"), max_length=255)
    source = models.CharField(_("source"), max_length=255, blank=True)
    sent_at = models.DateTimeField(_("sent at"), null=True, blank=True)
    state = models.CharField(_("state"), max_length=10, choices=State.choices)
    round = models.PositiveIntegerField(_("round"), default=0)
    #: The attempt to which the state belongs.
    attempt = models.PositiveIntegerField(_("attempt"), default=1)
    #: How often the handler was started on a redelivered copy of this attempt without an end.
    started = models.PositiveIntegerField(_("started"), default=0)
    #: The delay of the recorded retry in seconds if it waits in a tier.
    delay = models.FloatField(_("delay"), null=True, blank=True)
    due_at = models.DateTimeField(_("due at"), null=True, blank=True)
    created_at = models.DateTimeField(_("created at"), default=timezone.now)
    settled_at = models.DateTimeField(_("settled at"), default=timezone.now)
    error = models.TextField(_("error"), blank=True)
    #: Set if a person has closed the dead letter of the message.
    skip_reason = models.CharField(
        _("skip reason"), max_length=10, choices=SkipReason.choices, blank=True
    )

    objects = InboxQuerySet.as_manager()

    is_new = False

    class Meta:
        verbose_name = _("inbox record")
        verbose_name_plural = _("inbox records")
        constraints = (
            models.UniqueConstraint(
                fields=["subscription", "message_id"], name="eventbus_inbox_once"
            ),
        )
        indexes = (
            message_index("eventbus_inbox_message"),
            models.Index(fields=["state", "settled_at"], name="eventbus_inbox_settled"),
        )

    def __str__(self) -> str:
        return f"{self.subscription} {self.message_id}: {self.get_state_display()}"

    def answer_to(self, message: Message) -> Duplicate | None:
        """Return how to settle a copy that is not newer than this record; None if it must run."""
        if self.is_new or self.state == self.State.STARTED:
            return None
        is_newer = (message.round, message.attempt) > (self.round, self.attempt)
        if is_newer and not self.is_final and not self._still_awaits_another(message):
            return None
        # Do not send the retry of an older round again.
        delay = self.delay if message.round == self.round else None
        return Duplicate(state=self.state, attempt=self.attempt, delay=delay)

    def next_attempt(self, message: Message) -> Duplicate | Message:
        """Return *message* as the attempt that the record expects, or a Duplicate with its time."""
        is_awaited = self.state in (self.State.RETRYING, self.State.DEFERRED)
        if not is_awaited or message.round != self.round:
            return message
        if self.due_at and self.due_at > timezone.now():
            return Duplicate(state=self.state, attempt=self.attempt, until=self.due_at)
        return replace(message, headers={**message.headers, RETRY_COUNT: self.attempt})

    @property
    def is_final(self) -> bool:
        return self.state in (self.State.HANDLED, self.State.SKIPPED)

    def _still_awaits_another(self, message: Message) -> bool:
        """Whether this is a duplicate of a deferred message, and not its return."""
        if self.state != self.State.DEFERRED or self.due_at is None:
            return False
        # Compare the times in the message and the record, not our clock: a relay whose clock is
        # ahead sends the message early, and no other copy will come.
        return self.due_at > timezone.now() and message.not_before != moment(self._due_timestamp)

    @property
    def _due_timestamp(self) -> float:
        return int(self.due_at.timestamp() * 1000) / 1000 if self.due_at else 0.0

    def count_start(self) -> int:
        """Count a start of the handler; return the number of starts without an end."""
        self.started += 1
        self.save(using=self._state.db, update_fields=["started"])
        return self.started

    def undo_start(self) -> None:
        self.started = max(self.started - 1, 0)
        self.save(using=self._state.db, update_fields=["started"])

    def handled(self, message: Message) -> None:
        self._settle(self.State.HANDLED, message, error="")

    def skipped(self, message: Message, reason: str, skip_reason: str = "") -> None:
        self._settle(self.State.SKIPPED, message, error=reason, skip_reason=skip_reason)

    def parked(self, message: Message, reason: str) -> None:
        self._settle(self.State.PARKED, message, error=reason)

    def retrying(self, message: Message, reason: str, delay: float, by_tier: bool) -> None:
        self.delay = delay if by_tier else None
        self.due_at = timezone.now() + timedelta(seconds=delay)
        self._settle(self.State.RETRYING, message, error=reason)

    def deferred(self, message: Message, reason: str, until: datetime) -> None:
        """Record the time of the return. The attempt is not counted, so it stays one lower."""
        self.due_at = until
        self._settle(self.State.DEFERRED, message, error=reason)
        self.attempt = message.attempt - 1
        self.save(using=self._state.db, update_fields=["attempt"])

    @property
    def error_text(self) -> str:
        """The error, or the reason of a skip in the reader's language."""
        return SkipReason(self.skip_reason).sentence(self.error) if self.skip_reason else self.error

    def _settle(self, state: str, message: Message, *, error: str, skip_reason: str = "") -> None:
        if state not in (self.State.RETRYING, self.State.DEFERRED):
            self.due_at = None
        if state != self.State.RETRYING:
            self.delay = None
        self.state, self.round, self.attempt = state, message.round, message.attempt
        self.started, self.settled_at = 0, timezone.now()
        self.error, self.skip_reason = storable(error, 2000), skip_reason
        self.save(
            using=self._state.db,
            update_fields=[
                "state", "round", "attempt", "started", "settled_at", "error", "skip_reason",
                "delay", "due_at",
            ]
        )  # fmt: skip


def _busy(message: Message) -> Busy:
    return Busy(f"{message.id} is being handled by another worker")


def _lock_key(subscription: str, message_id: str) -> int:
    digest = hashlib.blake2b(f"{subscription}\x00{message_id}".encode(), digest_size=8)
    return int.from_bytes(digest.digest(), signed=True) or 1
