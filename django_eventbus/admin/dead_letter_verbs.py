"""Re-drive and Discard: what a person may do about dead letters."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_eventbus.admin.confirmation import Verb
from django_eventbus.closing import discard
from django_eventbus.models import DeadLetter
from django_eventbus.redrive import redrive


class ReasonForm(forms.Form):
    """Why something is done that nobody can take back."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 3, "class": "vLargeTextField"}),
    )


class Redrive(Verb):
    """Send dead letters back to the subscription that failed."""

    name = "redrive"
    title = gettext_lazy("Re-drive dead letters")
    question = gettext_lazy(
        "Each goes back to the queue and the subscription that failed, and to no other."
    )
    button = gettext_lazy("Re-drive")
    states = DeadLetter.REDRIVABLE
    stamp = "round"
    grouped_by = ("subscription", "error_type", "queue")

    def do(self, row: DeadLetter, *, by: str, reason: str, using: str) -> bool:
        return redrive([row.pk], by=by, using=using) == 1

    def record(self, row: DeadLetter, reason: str) -> str:
        return _("Re-driven: round %(round)d.") % {"round": row.round + 1}

    def forecast(self, count: int) -> str:
        return ngettext("%d will be re-driven", "%d will be re-driven", count) % count

    def summary(self, done: int, left: int) -> str:
        moved = ngettext("%d re-driven", "%d re-driven", done) % done
        return _with_left(moved, left)


class Discard(Verb):
    """Close dead letters for good."""

    name = "discard"
    title = gettext_lazy("Discard dead letters")
    question = gettext_lazy("Each is closed for good: its event is not handled.")
    button = gettext_lazy("Discard")
    states = DeadLetter.REDRIVABLE
    stamp = "round"
    grouped_by = ("subscription", "error_type", "queue")
    form = ReasonForm

    def do(self, row: DeadLetter, *, by: str, reason: str, using: str) -> bool:
        return discard([row.pk], reason=reason, by=by, using=using) == 1

    def record(self, row: DeadLetter, reason: str) -> str:
        return _("Discarded: %(reason)s") % {"reason": reason}

    def forecast(self, count: int) -> str:
        return ngettext("%d will be discarded", "%d will be discarded", count) % count

    def summary(self, done: int, left: int) -> str:
        moved = ngettext("%d discarded", "%d discarded", done) % done
        return _with_left(moved, left)


def _with_left(moved: str, left: int) -> str:
    if not left:
        return f"{moved}."
    words = ngettext("%d was no longer open", "%d were no longer open", left) % left
    return f"{moved}, {words}."


REDRIVE, DISCARD = Redrive(), Discard()
