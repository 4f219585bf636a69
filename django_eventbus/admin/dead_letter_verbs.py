"""Discard: what a person may do about dead letters."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_eventbus.admin.confirmation import Verb
from django_eventbus.closing import discard
from django_eventbus.models import DeadLetter


class ReasonForm(forms.Form):
    """Why something is done that nobody can take back."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 3, "class": "vLargeTextField"}),
    )


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


DISCARD = Discard()
