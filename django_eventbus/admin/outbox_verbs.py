"""Publish again and Cancel: what a person may do about outbox events."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_eventbus.admin.confirmation import Verb
from django_eventbus.models import OutboxEvent


class PublishAgain(Verb):
    """Give unroutable and failed rows another chance."""

    name = "publish_again"
    title = gettext_lazy("Publish outbox events again")
    question = gettext_lazy("The relay sends each again, as it stands.")
    button = gettext_lazy("Publish again")
    states = (OutboxEvent.State.UNROUTABLE, OutboxEvent.State.FAILED)
    stamp = "state"
    grouped_by = ("state", "type", "routing_key")

    def do(self, row: OutboxEvent, *, by: str, reason: str, using: str) -> bool:
        return OutboxEvent.objects.using(using).filter(pk=row.pk).publish_again() == 1

    def record(self, row: OutboxEvent, reason: str) -> str:
        return _("Published again. It was %(state)s: %(error)s") % {
            "state": row.get_state_display(),
            "error": row.error,
        }

    def forecast(self, count: int) -> str:
        return ngettext("%d will be sent again", "%d will be sent again", count) % count

    def summary(self, done: int, left: int) -> str:
        moved = ngettext("%d is sent again", "%d are sent again", done) % done
        words = ngettext("%d was no longer unsent", "%d were no longer unsent", left) % left
        return f"{moved}, {words}." if left else f"{moved}."


class CancelForm(forms.Form):
    """Why an event that was promised is not sent."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 3, "class": "vLargeTextField"}),
    )


class Cancel(Verb):
    """Take back what is not due yet."""

    name = "cancel"
    title = gettext_lazy("Cancel scheduled outbox events")
    question = gettext_lazy(
        "Each is taken back and never sent. A retry, and what a broker was sent already, stays."
    )
    button = gettext_lazy("Cancel the event")
    states = (OutboxEvent.State.SCHEDULED,)
    stamp = "state"
    grouped_by = ("type", "queue", "routing_key")
    form = CancelForm

    def do(self, row: OutboxEvent, *, by: str, reason: str, using: str) -> bool:
        rows = OutboxEvent.objects.using(using).filter(pk=row.pk)
        return rows.cancel(row.message_id) == 1

    def record(self, row: OutboxEvent, reason: str) -> str:
        return _("Cancelled: %(reason)s") % {"reason": reason}

    def forecast(self, count: int) -> str:
        return ngettext("%d will be cancelled", "%d will be cancelled", count) % count

    def summary(self, done: int, left: int) -> str:
        moved = ngettext("%d is cancelled", "%d are cancelled", done) % done
        words = ngettext(
            "%d could not be taken back any more", "%d could not be taken back any more", left
        )
        return f"{moved}, {words % left}." if left else f"{moved}."


PUBLISH_AGAIN, CANCEL = PublishAgain(), Cancel()
