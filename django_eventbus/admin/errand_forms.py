"""What may be asked of the broker on the page of a queue, and why it may not."""

from __future__ import annotations

from collections.abc import Sequence

from django import forms
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_eventbus import permissions
from django_eventbus.conf import conf
from django_eventbus.errands import MOST, owners_of_dlq
from django_eventbus.figures import WorkerFigures
from django_eventbus.models import Errand, Queue


class ErrandForm(forms.Form):
    """How many messages."""

    limit = forms.IntegerField(label=gettext_lazy("At most"), min_value=1)


class PeekForm(ErrandForm):
    """A look at the first messages."""

    limit = forms.IntegerField(
        label=gettext_lazy("Look at, at most"),
        min_value=1,
        max_value=MOST[Errand.Kind.PEEK],
        initial=10,
    )


class RedriveForm(ErrandForm):
    """A re-drive of the first messages; many need a reason."""

    limit = forms.IntegerField(
        label=gettext_lazy("Re-drive, at most"),
        min_value=1,
        max_value=MOST[Errand.Kind.REDRIVE],
        initial=100,
    )
    reason = forms.CharField(label=gettext_lazy("Reason"), max_length=1000, required=False)

    def clean(self) -> dict[str, object]:
        """Refuse many without a reason."""
        cleaned = super().clean() or {}
        if cleaned.get("limit", 0) > conf.reason_above and not cleaned.get("reason"):
            words = _("More than %(number)d need a reason.") % {"number": conf.reason_above}
            self.add_error("reason", words)
        return cleaned


FORMS: dict[str, type[ErrandForm]] = {
    Errand.Kind.PEEK: PeekForm,
    Errand.Kind.REDRIVE: RedriveForm,
}


def why_not(kind: str, request: HttpRequest, queue: Queue, live: Sequence[WorkerFigures]) -> str:
    """Say why it cannot be asked for now; "" if it can."""
    verb: permissions.Verb = "view" if kind == Errand.Kind.PEEK else "redrive"
    if reason := permissions.why_not_everywhere(request.user, verb, owners_of_dlq(queue.name)):
        return reason
    if not queue.dlq:
        return _("There is no DLQ here: dead letters are in the database.")
    if kind == Errand.Kind.REDRIVE and queue.is_collected:
        return _("Consumers turn what lies there into dead letters: re-drive those.")
    # Not by a relay, which may lack the right to look at queues.
    can = any(queue.name in each.queues for each in live)
    return "" if can else _("No consumer of this queue runs that could do it.")
