"""Planned letters: one dead letter in one plan."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_eventbus.models.dead_letter import DeadLetter
from django_eventbus.models.plan import Plan


class PlannedLetter(models.Model):
    """A dead letter as it was when the plan was made, and what has come of it."""

    class State(models.TextChoices):
        PENDING = "pending", _("pending")
        SENT = "sent", _("sent")
        HEALED = "healed", _("healed")
        FAILED = "failed", _("failed again")
        SKIPPED = "skipped", _("skipped")
        #: Sent, and nothing was heard of it in time.
        UNKNOWN = "unknown", _("unanswered")
        DISCARDED = "discarded", _("discarded")
        RESTORED = "restored", _("restored")

    #: Something is still to be done, or to be known.
    UNSETTLED = (State.PENDING, State.SENT)

    plan = models.ForeignKey(Plan, models.CASCADE, related_name="planned")
    # Without a constraint: a dead letter that is healed may be pruned before its plan.
    dead_letter = models.ForeignKey(
        DeadLetter, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="planned"
    )
    #: The round in which the dead letter was seen; in another it is left alone.
    round = models.PositiveIntegerField()
    state = models.CharField(max_length=10, choices=State.choices, default=State.PENDING)
    #: Why it was skipped, or what it failed with.
    why = models.CharField(max_length=255, blank=True)
    #: The id of the edited message that went out in its place.
    sent_as = models.CharField(max_length=255, blank=True)
    sent_at = models.DateTimeField(null=True, blank=True)
    settled_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = _("planned letter")
        verbose_name_plural = _("planned letters")
        constraints = (
            models.UniqueConstraint(fields=["dead_letter", "plan"], name="eventbus_planned_once"),
        )
        indexes = (
            models.Index(fields=["plan", "state", "id"], name="eventbus_planned_state"),
            models.Index(
                fields=["plan", "settled_at"],
                condition=models.Q(settled_at__isnull=False),
                name="eventbus_planned_settled",
            ),
        )

    def __str__(self) -> str:
        return f"dead letter {self.dead_letter_id} in plan {self.plan_id}: {self.state}"
