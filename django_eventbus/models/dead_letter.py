"""Dead letters: parked messages, for a person to look at."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from django_eventbus.messages import storable
from django_eventbus.models.carried_message import CarriedMessage, message_index


class DeadLetterQuerySet(models.QuerySet["DeadLetter"]):
    """Questions and verbs on many dead letters."""

    def redrivable(self) -> DeadLetterQuerySet:
        return self.filter(state__in=DeadLetter.REDRIVABLE)

    def heal(self, subscription: str, message_id: str) -> int:
        """Close the dead letter of a message that has been handled after all."""
        found = self.filter(subscription=subscription, message_id=message_id)
        closed = (DeadLetter.State.HEALED, DeadLetter.State.DISCARDED)
        unhealed = found.exclude(state__in=closed)
        return unhealed.update(state=DeadLetter.State.HEALED, closed_at=timezone.now(), note="")


class DeadLetter(CarriedMessage):
    """A parked message: the exact bytes, why, and what has been done about it."""

    class State(models.TextChoices):
        OPEN = "open", _("open")
        REDRIVING = "redriving", _("re-driving")
        HEALED = "healed", _("healed")
        #: Re-driven, and nothing was heard of it in time.
        UNKNOWN = "unknown", _("unanswered")
        DISCARDED = "discarded", _("discarded")

    REDRIVABLE = (State.OPEN, State.UNKNOWN)

    class Kind(models.TextChoices):
        FAILED = "failed", _("failed")
        GIVEN_UP = "given_up", _("given up")
        UNDECODABLE = "undecodable", _("undecodable")
        INVALID = "invalid", _("invalid payload")
        UNMATCHED = "unmatched", _("unmatched")
        TOO_OLD = "too_old", _("too old")
        TOO_EARLY = "too_early", _("too early")
        START_LIMIT = "start_limit", _("start limit")
        #: From here on: found in the broker's DLQ.
        DELIVERY_LIMIT = "delivery_limit", _("delivery limit")
        EXPIRED = "expired", _("expired")
        MAXLEN = "maxlen", _("queue too long")
        REJECTED = "rejected", _("rejected")
        FOREIGN = "foreign", _("put there by others")

    #: "" if no subscription was reached.
    subscription = models.CharField(max_length=255, blank=True)
    queue = models.CharField(max_length=255)
    state = models.CharField(max_length=10, choices=State.choices, default=State.OPEN)
    kind = models.CharField(max_length=20, choices=Kind.choices)
    round = models.PositiveIntegerField(default=0)
    attempts = models.PositiveIntegerField(default=1)
    error_type = models.CharField(max_length=255, blank=True)
    error = models.TextField(blank=True)
    traceback = models.TextField(blank=True)
    fingerprint = models.CharField(max_length=64, db_index=True)
    payload = models.JSONField(null=True, blank=True)
    host = models.CharField(max_length=255, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    parked_at = models.DateTimeField(default=timezone.now)
    redriven_at = models.DateTimeField(null=True, blank=True)
    redriven_by = models.CharField(max_length=255, blank=True)
    closed_at = models.DateTimeField(null=True, blank=True)
    closed_by = models.CharField(max_length=255, blank=True)
    note = models.TextField(blank=True)

    objects = DeadLetterQuerySet.as_manager()

    class Meta:
        verbose_name = _("dead letter")
        verbose_name_plural = _("dead letters")
        permissions = (
            ("redrive_deadletter", "Can re-drive dead letters"),
            ("discard_deadletter", "Can discard dead letters"),
            ("see_sensitive_deadletter", "Can see sensitive values of dead letters"),
        )
        constraints = (
            models.UniqueConstraint(
                fields=["subscription", "queue", "message_id"], name="eventbus_dead_letter_once"
            ),
        )
        indexes = (
            message_index("eventbus_dead_letter_message"),
            models.Index(fields=["state", "parked_at"], name="eventbus_dead_letter_state"),
        )

    def __str__(self) -> str:
        return f"{self.type} {self.message_id}"

    @property
    def is_closed(self) -> bool:
        return self.state in (self.State.HEALED, self.State.DISCARDED)

    def redriving(self, by: str) -> None:
        self._change(
            state=self.State.REDRIVING,
            round=self.round + 1,
            redriven_at=timezone.now(),
            redriven_by=storable(by, 255),
            note="",
        )

    def discard(self, reason: str, by: str) -> None:
        self._change(
            state=self.State.DISCARDED,
            closed_at=timezone.now(),
            closed_by=storable(by, 255),
            note=storable(reason, 2000),
        )

    def _change(self, **values: Any) -> None:
        for name, value in values.items():
            setattr(self, name, value)
        self.save(using=self._state.db, update_fields=list(values))
