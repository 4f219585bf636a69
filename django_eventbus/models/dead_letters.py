"""Dead letters and failure groups."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from django_eventbus.durations import require_within_calendar
from django_eventbus.events.message import REDRIVEN_DEAD_LETTER
from django_eventbus.events.text import storable
from django_eventbus.models.lookups import JsonIndex
from django_eventbus.models.message_columns import MessageColumns, message_index
from django_eventbus.models.outbox import OutboxEvent
from django_eventbus.models.reasons import UnansweredReason


class DeadLetterQuerySet(models.QuerySet["DeadLetter"]):
    """Queries and bulk updates of dead letters."""

    def redrivable(self) -> DeadLetterQuerySet:
        return self.filter(state__in=DeadLetter.REDRIVABLE)

    def heal(self, subscriptions: Collection[str], message_id: str, states: Collection[str]) -> int:
        """Close the dead letters in *states* of a message that was handled; return their number."""
        unhealed = self.filter(
            subscription__in=subscriptions,
            message_id=message_id,
            state__in=states,
            # Not an edited one: the edited message must be handled instead, and only once.
            replaced_by="",
        )
        return unhealed.update(
            state=DeadLetter.State.HEALED, closed_at=timezone.now(), note="", unanswered=""
        )

    def waiting_of(self, subscription: str, key: str) -> DeadLetterQuerySet:
        """Return the open dead letters of a key, in the order in which they were parked."""
        mine = self.filter(subscription=subscription, key=key, state__in=DeadLetter.WAITING)
        return mine.order_by("id")

    def mark_unsent(self, rows: Iterable[OutboxEvent]) -> None:
        """Mark dead letters as unanswered whose re-drive the broker did not accept."""
        for row in rows:
            if letter_id := row.message().number(REDRIVEN_DEAD_LETTER):
                redriving = self.filter(pk=letter_id, state=DeadLetter.State.REDRIVING)
                redriving.mark_unanswered(UnansweredReason.UNSENT)

    def mark_unanswered(self, reason: UnansweredReason) -> int:
        return self.update(state=DeadLetter.State.UNKNOWN, unanswered=reason)


class DeadLetter(MessageColumns):
    """A parked message: its exact bytes, the reason, and its state."""

    class State(models.TextChoices):
        OPEN = "open", _("open")
        REDRIVING = "redriving", _("re-driving")
        HEALED = "healed", _("healed")
        #: Re-driven, but the outcome was not reported in time.
        UNKNOWN = "unknown", _("unanswered")
        DISCARDED = "discarded", _("discarded")
        #: An edited message was sent instead.
        REPLACED = "replaced", _("replaced")

    REDRIVABLE = (State.OPEN, State.UNKNOWN)
    #: Re-driven, but without an outcome.
    AWAITED = (State.REDRIVING, State.UNKNOWN)
    #: Not closed yet.
    WAITING = (State.OPEN, State.REDRIVING, State.UNKNOWN)
    REDRIVEN_COLUMNS = (
        "state", "round", "redriven_at", "redriven_by", "note", "unanswered", "replaced_by",
    )  # fmt: skip
    CLOSED = (State.HEALED, State.DISCARDED, State.REPLACED)

    class Kind(models.TextChoices):
        FAILED = "failed", _("failed")
        GIVEN_UP = "given_up", _("given up")
        UNDECODABLE = "undecodable", _("undecodable")
        INVALID = "invalid", _("invalid payload")
        UNMATCHED = "unmatched", _("unmatched")
        TOO_OLD = "too_old", _("too old")
        TOO_EARLY = "too_early", _("too early")
        START_LIMIT = "start_limit", _("start limit")
        #: The handler did not run, because an earlier event of its key is parked.
        HELD = "held", _("held")
        #: An error kept the outcome from being recorded: the dead letter has the bytes only.
        UNRECORDED = "unrecorded", _("could not be recorded")
        #: The following kinds were collected from a DLQ of the broker.
        DELIVERY_LIMIT = "delivery_limit", _("delivery limit")
        EXPIRED = "expired", _("expired")
        MAXLEN = "maxlen", _("queue too long")
        REJECTED = "rejected", _("rejected")
        FOREIGN = "foreign", _("put there by others")

    #: "" if the message reached no subscription.
    subscription = models.CharField(_("subscription"), max_length=255, blank=True)
    queue = models.CharField(_("queue"), max_length=255)
    #: Tells dead letters apart that have the same message id, but not the same message.
    variant = models.CharField(_("variant"), max_length=64, blank=True)
    key = models.CharField(_("key"), max_length=255, blank=True)
    state = models.CharField(_("state"), max_length=10, choices=State.choices, default=State.OPEN)
    kind = models.CharField(_("kind"), max_length=20, choices=Kind.choices)
    round = models.PositiveIntegerField(_("round"), default=0)
    attempts = models.PositiveIntegerField(_("attempts"), default=1)
    error_type = models.CharField(_("error type"), max_length=255, blank=True)
    error = models.TextField(_("error"), blank=True)
    traceback = models.TextField(_("traceback"), blank=True)
    #: The key of its FailureGroup.
    fingerprint = models.CharField(_("fingerprint"), max_length=64)
    payload = models.JSONField(_("payload"), null=True, blank=True)
    host = models.CharField(_("host"), max_length=255, blank=True)
    created_at = models.DateTimeField(_("created at"), default=timezone.now)
    parked_at = models.DateTimeField(_("parked at"), default=timezone.now)
    #: PostgreSQL's id of the transaction that parked it; 0 on SQLite.
    parked_xid = models.BigIntegerField(_("parking transaction"), default=0)
    redriven_at = models.DateTimeField(_("redriven at"), null=True, blank=True)
    redriven_by = models.CharField(_("redriven by"), max_length=255, blank=True)
    closed_at = models.DateTimeField(_("closed at"), null=True, blank=True)
    closed_by = models.CharField(_("closed by"), max_length=255, blank=True)
    note = models.TextField(_("note"), blank=True)
    #: Why the outcome of its re-drive is not known.
    unanswered = models.CharField(
        _("unanswered because"), max_length=10, choices=UnansweredReason.choices, blank=True
    )
    #: Before this time, it is not shown with the waiting dead letters.
    ignored_until = models.DateTimeField(_("ignored until"), null=True, blank=True)
    #: The id of the edited message that was sent instead.
    replaced_by = models.CharField(_("replaced by"), max_length=255, blank=True)
    #: The id of the message that this one was edited from.
    edited_from = models.CharField(_("edited from"), max_length=255, blank=True)

    objects = DeadLetterQuerySet.as_manager()

    class Meta:
        verbose_name = _("dead letter")
        verbose_name_plural = _("dead letters")
        permissions = (
            ("redrive_deadletter", "Can re-drive dead letters"),
            ("discard_deadletter", "Can discard dead letters"),
            ("edit_deadletter", "Can edit and re-drive dead letters"),
            ("see_sensitive_deadletter", "Can see sensitive values of dead letters"),
        )
        constraints = (
            models.UniqueConstraint(
                fields=["subscription", "queue", "message_id", "variant"],
                name="eventbus_dead_letter_once",
            ),
        )
        indexes = (
            message_index("eventbus_dead_letter_message"),
            # For pages of the list, and for a dry run, which counts without reading rows.
            # Without include=, because Django warns about it on SQLite.
            models.Index(
                fields=["state", "parked_at", "id", "queue", "subscription", "type", "parked_xid"],
                name="eventbus_dead_letter_state",
            ),
            # For groups and the counts per group, without reading rows.
            models.Index(
                fields=["state", "fingerprint", "parked_at", "round"],
                name="eventbus_dead_letter_group",
            ),
            # For the trend of a group, which includes dead letters in all states.
            models.Index(fields=["fingerprint", "created_at"], name="eventbus_dead_letter_trend"),
            # For the number of ignored dead letters on the dashboard. There are few.
            models.Index(
                fields=["ignored_until"],
                condition=models.Q(ignored_until__isnull=False),
                name="eventbus_dead_letter_ignored",
            ),
            # For the query before each message of a subscription that holds keys.
            models.Index(
                fields=["subscription", "key", "id"],
                condition=models.Q(state__in=["open", "redriving", "unknown"]),
                name="eventbus_dead_letter_key",
            ),
            # For selections by payload and headers.
            JsonIndex(
                fields=["payload"],
                opclasses=["jsonb_path_ops"],
                name="eventbus_dead_letter_payload",
            ),
            JsonIndex(
                fields=["headers"],
                opclasses=["jsonb_path_ops"],
                name="eventbus_dead_letter_headers",
            ),
        )

    def __str__(self) -> str:
        return f"{self.type} {self.message_id}"

    @property
    def is_closed(self) -> bool:
        return self.state in self.CLOSED

    def set_redriving(self, by: str, at: datetime, replaced_by: str = "") -> None:
        """Change the fields in REDRIVEN_COLUMNS for a re-drive, without saving."""
        self.state, self.round = self.State.REDRIVING, self.round + 1
        self.redriven_at, self.redriven_by = at, storable(by, 255)
        self.note, self.unanswered, self.replaced_by = "", "", replaced_by


class FailureGroup(models.Model):
    """
    Failures with the same fingerprint, and the decision about them.

    The row is created when the first failure is parked, and later changed only by people. Counts
    and times are queried from the dead letters.
    """

    class Status(models.TextChoices):
        NEW = "new", _("new")
        ACKNOWLEDGED = "acknowledged", _("acknowledged")
        #: The group is ignored until ignored_until; after that it counts as new.
        IGNORED = "ignored", _("ignored")
        RESOLVED = "resolved", _("resolved")

    fingerprint = models.CharField(max_length=64, primary_key=True)
    kind = models.CharField(max_length=20)
    subscription = models.CharField(max_length=255, blank=True)
    error_type = models.CharField(max_length=255, blank=True)
    #: The module and function in the project's own code that failed.
    place = models.CharField(max_length=255, blank=True)
    #: The text of the error with placeholders for variable parts.
    title = models.TextField(blank=True)
    status = models.CharField(max_length=12, choices=Status.choices, default=Status.NEW)
    ignored_until = models.DateTimeField(null=True, blank=True)
    note = models.TextField(blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    changed_at = models.DateTimeField(null=True, blank=True)
    changed_by = models.CharField(max_length=255, blank=True)

    class Meta:
        verbose_name = _("failure group")
        verbose_name_plural = _("failure groups")

    def __str__(self) -> str:
        return f"{self.subscription} {self.error_type}: {self.title}"[:200]

    @property
    def kind_name(self) -> str:
        """The name of the kind in the reader's language."""
        return str(dict(DeadLetter.Kind.choices).get(self.kind, self.kind))

    def status_at(self, now: datetime) -> str:
        """Return the status at a time: an ignored group is new again after ignored_until."""
        is_over = self.ignored_until is not None and self.ignored_until <= now
        return self.Status.NEW if self.status == self.Status.IGNORED and is_over else self.status

    def acknowledge(self, by: str, note: str) -> None:
        self._decide(self.Status.ACKNOWLEDGED, by, note)

    def ignore(self, until: datetime, by: str, note: str) -> None:
        require_within_calendar(until)
        self._decide(self.Status.IGNORED, by, note, until=until)

    def resolve(self, by: str, note: str) -> None:
        self._decide(self.Status.RESOLVED, by, note)

    def reopen(self, by: str, note: str) -> None:
        self._decide(self.Status.NEW, by, note)

    def _decide(self, status: str, by: str, note: str, until: datetime | None = None) -> None:
        values: dict[str, Any] = {
            "status": status,
            "ignored_until": until,
            "note": storable(note, 2000),
            "changed_at": timezone.now(),
            "changed_by": storable(by, 255),
        }
        for name, value in values.items():
            setattr(self, name, value)
        self.save(using=self._state.db, update_fields=list(values))
