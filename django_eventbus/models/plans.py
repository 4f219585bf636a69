"""Plans over dead letters, and the letters of each plan."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_eventbus.events.text import storable
from django_eventbus.models.dead_letters import DeadLetter
from django_eventbus.models.reasons import LetterReason, PlanNote

_NO_NOTE = {"note": "", "note_detail": ""}


class PlanQuerySet(models.QuerySet["Plan"]):
    """Queries about plans."""

    def under_way(self) -> PlanQuerySet:
        """Return the plans that need a worker."""
        return self.filter(ended_at=None).exclude(state=Plan.State.PLANNED)


class Plan(models.Model):
    """An action on a frozen selection, with its pace and its creator."""

    class Action(models.TextChoices):
        REDRIVE = "redrive", _("re-drive")
        DISCARD = "discard", _("discard")
        RESTORE = "restore", _("restore")

    class State(models.TextChoices):
        PLANNED = "planned", _("planned")
        CANARY = "canary", _("canary")
        RUNNING = "running", _("running")
        PAUSED = "paused", _("paused")
        DONE = "done", _("done")
        CANCELLED = "cancelled", _("cancelled")

    STARTED = (State.CANARY, State.RUNNING)

    #: The states in which each verb can be applied.
    VERBS: ClassVar[dict[str, tuple[str, ...]]] = {
        "start": (State.PLANNED,),
        "pause": STARTED,
        "resume": (State.PAUSED,),
        "cancel": (State.PLANNED, *STARTED, State.PAUSED),
    }

    action = models.CharField(
        _("action"), max_length=10, choices=Action.choices, default=Action.REDRIVE
    )
    state = models.CharField(
        _("state"), max_length=10, choices=State.choices, default=State.PLANNED
    )
    #: The selection as the query string of a URL.
    filter = models.TextField(_("filter"), blank=True)
    #: The queues of its dead letters. A user needs access to all of them to see the plan.
    queues = models.JSONField(_("queues"), default=list, blank=True)
    reason = models.TextField(_("reason"), blank=True)
    #: The number of dead letters in the canary.
    canary = models.PositiveIntegerField(_("canary"), default=0)
    #: Dead letters per second; None means no limit.
    rate = models.FloatField(_("rate"), null=True, blank=True)
    #: The maximum number of re-drives without an outcome at the same time.
    in_flight = models.PositiveIntegerField(_("in flight"))
    #: The plan pauses if more than this percentage of the latest outcomes are failures.
    fail_percent = models.PositiveSmallIntegerField(_("fail percent"))
    #: The number of attempts of each re-drive.
    tries = models.PositiveIntegerField(_("tries"), default=1)
    #: A JSON merge patch (RFC 7396) of the payloads, or None.
    patch = models.JSONField(_("patch"), null=True, blank=True)
    created_at = models.DateTimeField(_("created at"), default=timezone.now)
    created_by = models.CharField(_("created by"), max_length=255, blank=True)
    started_at = models.DateTimeField(_("started at"), null=True, blank=True)
    #: Failures of earlier re-drives do not pause it again. None if the plan paused by itself.
    resumed_at = models.DateTimeField(_("resumed at"), null=True, blank=True)
    #: The time until which the rate has been used.
    paced_at = models.DateTimeField(_("paced at"), null=True, blank=True)
    #: When the last outcome was known. After that, nothing changes.
    ended_at = models.DateTimeField(_("ended at"), null=True, blank=True)
    #: The number of its dead letters.
    total = models.PositiveIntegerField(_("dead letters"), default=0)
    #: The final counts by state. Before the plan ends, they are queried from its rows.
    counts = models.JSONField(_("outcomes"), default=dict, blank=True)
    #: Why it paused, or that a person changed it.
    note = models.CharField(_("note"), max_length=20, choices=PlanNote.choices, blank=True)
    note_detail = models.CharField(_("detail of the note"), max_length=255, blank=True)

    objects = PlanQuerySet.as_manager()

    class Meta:
        verbose_name = _("plan")
        verbose_name_plural = _("plans")
        indexes = (
            models.Index(
                fields=["id"],
                condition=models.Q(ended_at__isnull=True),
                name="eventbus_plan_under_way",
            ),
        )

    def __str__(self) -> str:
        words = {"id": self.pk, "state": self.get_state_display()}
        return gettext("plan %(id)s: %(state)s") % words

    @property
    def is_redrive(self) -> bool:
        return self.action == self.Action.REDRIVE

    @property
    def is_started(self) -> bool:
        return self.state in self.STARTED

    @property
    def is_under_way(self) -> bool:
        """Whether it needs a worker."""
        return self.ended_at is None and (self.is_started or self.state == self.State.CANCELLED)

    @property
    def note_text(self) -> str:
        """The note as a sentence in the reader's language."""
        return PlanNote(self.note).sentence(self.note_detail) if self.note else ""

    def allows(self, verb: str) -> bool:
        """Whether *verb* can be applied in the present state."""
        return self.state in self.VERBS[verb]

    @property
    def is_over(self) -> bool:
        return self.state in (self.State.DONE, self.State.CANCELLED)

    def start(self) -> None:
        now = timezone.now()
        state = self.State.CANARY if self.canary else self.State.RUNNING
        self._change(state=state, started_at=now, resumed_at=now, paced_at=now, **_NO_NOTE)

    def pass_canary(self) -> None:
        self._change(state=self.State.RUNNING, paced_at=timezone.now())

    def pause(self, by: str) -> None:
        self._change(state=self.State.PAUSED, **_note(PlanNote.PAUSED, by))

    def pause_itself(self, note: PlanNote, detail: str) -> None:
        """Pause until a person has fixed the cause; later outcomes are judged on their own."""
        self._change(state=self.State.PAUSED, resumed_at=None, **_note(note, detail))

    def resume(self, state: str) -> None:
        now = timezone.now()
        self._change(state=state, resumed_at=self.resumed_at or now, paced_at=now, **_NO_NOTE)

    def cancel(self, by: str) -> None:
        self._change(state=self.State.CANCELLED, **_note(PlanNote.CANCELLED, by))

    def end(self, counts: dict[str, int]) -> None:
        """End the plan: nothing is pending any more, and every outcome is known."""
        state = self.state if self.is_over else self.State.DONE
        self._change(state=state, ended_at=timezone.now(), counts=counts)

    def _change(self, **values: Any) -> None:
        for name, value in values.items():
            setattr(self, name, value)
        self.save(using=self._state.db, update_fields=list(values))


def _note(note: PlanNote, detail: str) -> dict[str, str]:
    return {"note": note, "note_detail": storable(detail, 255)}


class PlannedLetter(models.Model):
    """A dead letter of a plan, with its round at the creation of the plan, and its outcome."""

    class State(models.TextChoices):
        PENDING = "pending", _("pending")
        SENT = "sent", _("sent")
        HEALED = "healed", _("healed")
        FAILED = "failed", _("failed again")
        SKIPPED = "skipped", _("skipped")
        #: Sent, but the outcome was not reported in time.
        UNKNOWN = "unknown", _("unanswered")
        DISCARDED = "discarded", _("discarded")
        RESTORED = "restored", _("restored")

    #: States that will change: the dead letter must be sent, or its outcome is not known.
    UNSETTLED = (State.PENDING, State.SENT)
    SETTLED_COLUMNS = ("state", "reason", "detail", "settled_at")

    plan = models.ForeignKey(Plan, models.CASCADE, related_name="planned")
    # Without a constraint: a healed dead letter may be pruned before its plan.
    dead_letter = models.ForeignKey(
        DeadLetter, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="planned"
    )
    #: The round at the creation of the plan. In another round, the dead letter is skipped.
    round = models.PositiveIntegerField()
    state = models.CharField(max_length=10, choices=State.choices, default=State.PENDING)
    #: Why it was skipped, or how it failed.
    reason = models.CharField(max_length=20, choices=LetterReason.choices, blank=True)
    detail = models.CharField(max_length=255, blank=True)
    #: The id of the edited message that was sent instead.
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

    @property
    def reason_text(self) -> str:
        """The reason as a sentence in the reader's language."""
        if not self.reason:
            return ""
        is_state = self.reason == LetterReason.CHANGED
        detail = DeadLetter.State(self.detail).label if is_state else self.detail
        return LetterReason(self.reason).sentence(detail)

    def settle(self, state: str, reason: str, detail: str, at: datetime) -> None:
        """Set the fields in SETTLED_COLUMNS to its outcome, without saving."""
        self.state, self.settled_at = state, at
        self.reason, self.detail = reason, storable(detail, 255)
