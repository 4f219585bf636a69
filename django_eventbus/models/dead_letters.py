"""Messages that were parked, and the groups of their failures."""

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
    """Questions and verbs on many dead letters."""

    def redrivable(self) -> DeadLetterQuerySet:
        return self.filter(state__in=DeadLetter.REDRIVABLE)

    def heal(self, subscriptions: Collection[str], message_id: str, states: Collection[str]) -> int:
        """Close the dead letters in *states* of a message that has been handled after all."""
        unhealed = self.filter(
            subscription__in=subscriptions,
            message_id=message_id,
            state__in=states,
            # Not one that was edited: what has gone out in its place is to be handled, once.
            replaced_by="",
        )
        return unhealed.update(
            state=DeadLetter.State.HEALED, closed_at=timezone.now(), note="", unanswered=""
        )

    def waiting_of(self, subscription: str, key: str) -> DeadLetterQuerySet:
        """Return those of a key that are not closed, in the order in which they were parked."""
        mine = self.filter(subscription=subscription, key=key, state__in=DeadLetter.WAITING)
        return mine.order_by("id")

    def mark_unsent(self, rows: Iterable[OutboxEvent]) -> None:
        """Open again, as unanswered, the dead letters whose re-drive the broker did not take."""
        for row in rows:
            if letter_id := row.message().number(REDRIVEN_DEAD_LETTER):
                redriving = self.filter(pk=letter_id, state=DeadLetter.State.REDRIVING)
                redriving.mark_unanswered(UnansweredReason.UNSENT)

    def mark_unanswered(self, reason: UnansweredReason) -> int:
        return self.update(state=DeadLetter.State.UNKNOWN, unanswered=reason)


class DeadLetter(MessageColumns):
    """A parked message: the exact bytes, why, and what has been done about it."""

    class State(models.TextChoices):
        OPEN = "open", _("open")
        REDRIVING = "redriving", _("re-driving")
        HEALED = "healed", _("healed")
        #: Re-driven, and nothing was heard of it in time.
        UNKNOWN = "unknown", _("unanswered")
        DISCARDED = "discarded", _("discarded")
        #: An edited message went out in its place.
        REPLACED = "replaced", _("replaced")

    REDRIVABLE = (State.OPEN, State.UNKNOWN)
    #: Re-driven, and not answered.
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
        #: Not run: an earlier event of its key is parked.
        HELD = "held", _("held")
        #: From here on: found in the broker's DLQ.
        DELIVERY_LIMIT = "delivery_limit", _("delivery limit")
        EXPIRED = "expired", _("expired")
        MAXLEN = "maxlen", _("queue too long")
        REJECTED = "rejected", _("rejected")
        FOREIGN = "foreign", _("put there by others")

    #: "" if no subscription was reached.
    subscription = models.CharField(_("subscription"), max_length=255, blank=True)
    queue = models.CharField(_("queue"), max_length=255)
    key = models.CharField(_("key"), max_length=255, blank=True)
    state = models.CharField(_("state"), max_length=10, choices=State.choices, default=State.OPEN)
    kind = models.CharField(_("kind"), max_length=20, choices=Kind.choices)
    round = models.PositiveIntegerField(_("round"), default=0)
    attempts = models.PositiveIntegerField(_("attempts"), default=1)
    error_type = models.CharField(_("error type"), max_length=255, blank=True)
    error = models.TextField(_("error"), blank=True)
    traceback = models.TextField(_("traceback"), blank=True)
    #: Of its FailureGroup.
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
    #: Not shown among what waits before this time.
    ignored_until = models.DateTimeField(_("ignored until"), null=True, blank=True)
    #: The id of the edited message that went out in its place.
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
                fields=["subscription", "queue", "message_id"], name="eventbus_dead_letter_once"
            ),
        )
        indexes = (
            message_index("eventbus_dead_letter_message"),
            # The list, a page at a time; and a dry run, which counts without a look at the rows.
            # No include=: Django would warn of it on SQLite, whose users cannot help it.
            models.Index(
                fields=["state", "parked_at", "id", "queue", "subscription", "type", "parked_xid"],
                name="eventbus_dead_letter_state",
            ),
            # The groups, and what is counted per group, without a look at the rows.
            models.Index(
                fields=["state", "fingerprint", "parked_at", "round"],
                name="eventbus_dead_letter_group",
            ),
            # The trend of a group: what came in the last day, whatever has become of it.
            models.Index(fields=["fingerprint", "created_at"], name="eventbus_dead_letter_trend"),
            # The dashboard counts those that are out of sight; there are few, or none.
            models.Index(
                fields=["ignored_until"],
                condition=models.Q(ignored_until__isnull=False),
                name="eventbus_dead_letter_ignored",
            ),
            # Asked before each message of a subscription that holds keys.
            models.Index(
                fields=["subscription", "key", "id"],
                condition=models.Q(state__in=["open", "redriving", "unknown"]),
                name="eventbus_dead_letter_key",
            ),
            # What a selection asks of payload and headers.
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
        """Change what a re-drive changes, without saving: see REDRIVEN_COLUMNS."""
        self.state, self.round = self.State.REDRIVING, self.round + 1
        self.redriven_at, self.redriven_by = at, storable(by, 255)
        self.note, self.unanswered, self.replaced_by = "", "", replaced_by


class FailureGroup(models.Model):
    """
    Failures with one fingerprint: what they have in common, and what was decided about them.

    Written once, when the first of them is parked, and then by people only: how many there are,
    and since when, is asked of the dead letters.
    """

    class Status(models.TextChoices):
        NEW = "new", _("new")
        ACKNOWLEDGED = "acknowledged", _("acknowledged")
        #: Until ignored_until; then it counts as new again.
        IGNORED = "ignored", _("ignored")
        RESOLVED = "resolved", _("resolved")

    fingerprint = models.CharField(max_length=64, primary_key=True)
    kind = models.CharField(max_length=20)
    subscription = models.CharField(max_length=255, blank=True)
    error_type = models.CharField(max_length=255, blank=True)
    #: The project's own code that failed: module and function.
    place = models.CharField(max_length=255, blank=True)
    #: The error's words without what varies.
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
        """The kind in the reader's language."""
        return str(dict(DeadLetter.Kind.choices).get(self.kind, self.kind))

    def status_at(self, now: datetime) -> str:
        """Return the status; what was ignored is new again when its time is over."""
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
