"""The audit: who did what to dead letters, plans and outbox events."""

from __future__ import annotations

from typing import Any, NoReturn

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from django_eventbus.exceptions import AppendOnly
from django_eventbus.models.reasons import PlanNote


class AuditQuerySet(models.QuerySet["AuditEntry"]):
    """Entries can only be added and read."""

    def update(self, **values: Any) -> NoReturn:
        raise AppendOnly("The audit is append-only: an entry cannot be changed.")

    def delete(self) -> NoReturn:
        raise AppendOnly("The audit is append-only: an entry cannot be deleted.")

    def bulk_create(self, *args: Any, **options: Any) -> list[AuditEntry]:
        if options.get("update_conflicts"):
            raise AppendOnly("The audit is append-only: an entry cannot be changed.")
        return super().bulk_create(*args, **options)


class AuditEntry(models.Model):
    """An action of a person, or the end of a plan of a person."""

    class Verb(models.TextChoices):
        DISCARD = "discard", _("discard")
        DISCARDED = "discarded", _("discarded")
        RESTORE = "restore", _("restore")
        RESTORED = "restored", _("restored")
        IGNORE = "ignore", _("ignore")
        REDRIVE = "redrive", _("re-drive")
        REDROVE = "redrove", _("re-driven")
        EDIT = "edit and re-drive", _("edit and re-drive")
        PLAN = "plan re-drive", _("plan re-drive")
        START_PLAN = "start plan", _("start the plan")
        PAUSE_PLAN = "pause plan", _("pause the plan")
        RESUME_PLAN = "resume plan", _("resume the plan")
        CANCEL_PLAN = "cancel plan", _("cancel the plan")
        PLAN_PAUSED = "plan paused", _("plan paused by itself")
        PLAN_ENDED = "plan ended", _("plan ended")
        ACKNOWLEDGE_GROUP = "acknowledge group", _("acknowledge the group")
        IGNORE_GROUP = "ignore group", _("ignore the group")
        RESOLVE_GROUP = "resolve group", _("resolve the group")
        REOPEN_GROUP = "reopen group", _("mark the group as new")
        PEEK_DLQ = "peek DLQ", _("read the DLQ")
        REDRIVE_DLQ = "redrive DLQ", _("re-drive from the DLQ")
        REDROVE_DLQ = "redrove DLQ", _("re-driven from the DLQ")
        PUBLISH_AGAIN = "publish again", _("publish again")
        CANCEL = "cancel", _("cancel the event")
        EXPORT = "export", _("export")

    #: The verbs about messages on the broker, not about dead letters.
    OF_DLQS = (Verb.PEEK_DLQ, Verb.REDRIVE_DLQ, Verb.REDROVE_DLQ)

    at = models.DateTimeField(_("at"), default=timezone.now)
    by = models.CharField(_("by"), max_length=255, blank=True)
    verb = models.CharField(_("verb"), max_length=30, choices=Verb.choices)
    #: The reason that a person gave.
    why = models.TextField(_("why"), blank=True)
    #: The note of the plan, if a worker wrote the entry.
    note = models.CharField(_("note"), max_length=20, choices=PlanNote.choices, blank=True)
    note_detail = models.CharField(_("detail of the note"), max_length=255, blank=True)
    #: The selection as the query string of a URL.
    filter = models.TextField(_("filter"), blank=True)
    count = models.PositiveIntegerField(_("count"), default=0)
    # Not a foreign key, because plans are pruned and entries are not.
    plan_id = models.BigIntegerField(_("plan id"), null=True, blank=True)
    #: The result, such as counts by outcome.
    outcome = models.JSONField(_("outcome"), default=dict, blank=True)

    objects = AuditQuerySet.as_manager()

    class Meta:
        verbose_name = _("audit entry")
        verbose_name_plural = _("audit")
        indexes = (
            models.Index(fields=["-at"], name="eventbus_audit_at"),
            models.Index(fields=["plan_id"], name="eventbus_audit_plan"),
        )

    def __str__(self) -> str:
        at = timezone.localtime(self.at) if timezone.is_aware(self.at) else self.at
        return f"{at:%Y-%m-%d %H:%M} {self.by}: {self.get_verb_display()} {self.count}"

    def _do_update(self, base_qs: Any, using: Any, pk_val: Any, *args: Any, **options: Any) -> Any:
        # Not save() or save_base(), which loaddata bypasses: every update of a row ends here, also
        # that of a new instance with the id of a row.
        if base_qs.filter(pk=pk_val).exists():
            raise AppendOnly("The audit is append-only: an entry cannot be changed.")
        return False

    def delete(self, *args: Any, **options: Any) -> NoReturn:
        raise AppendOnly("The audit is append-only: an entry cannot be deleted.")

    @property
    def reason_text(self) -> str:
        """The note of the plan in the reader's language, and the reason of a person."""
        note = PlanNote(self.note).sentence(self.note_detail) if self.note else ""
        return " ".join(filter(None, (note, self.why)))
