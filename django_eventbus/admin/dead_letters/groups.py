"""The list of failure groups, and decisions about them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_eventbus.admin.charts import Bar, bars_of
from django_eventbus.admin.dead_letters.actions import buttons_for
from django_eventbus.admin.dead_letters.filters import filters_in, form_of, limited_to, selection_in
from django_eventbus.admin.dead_letters.state_text import rows_for_list
from django_eventbus.admin.forms import problem_with_until
from django_eventbus.admin.model_admin import ago
from django_eventbus.admin.pages import database_of, page, page_url, permitted_url, require_view
from django_eventbus.admin.permissions import denial_for_all, may_see
from django_eventbus.conf import conf
from django_eventbus.dead_letters.groups import (
    SEPARATE_KINDS,
    Group,
    buckets,
    group_of,
    groups,
    queues_of,
    record_decision,
)
from django_eventbus.dead_letters.query import matching, page_of
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.events.text import is_storable
from django_eventbus.exceptions import BadSelection
from django_eventbus.models import DeadLetter, FailureGroup
from django_eventbus.monitoring.problems import dlq_problems
from django_eventbus.monitoring.status import read_queues

PAGE_SIZE = 50
#: The time that a trend covers.
TREND_SPAN = timedelta(days=1)
OPEN = Selection.of([("state", str(DeadLetter.State.OPEN))])
_TITLES = {
    "undecodable": gettext_lazy("Undecodable"),
    "unmatched": gettext_lazy("Unmatched"),
    "broker": gettext_lazy("Dead on the broker"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A group with its trend and its links."""

    group: Group
    bars: list[Bar]
    trend: str
    status: str
    #: The end of an ignore.
    until: datetime | None
    first_seen: str
    last_seen: str
    url: str
    list_url: str
    sample_url: str


class DecisionForm(forms.Form):
    """A decision about a group."""

    note = forms.CharField(
        label=gettext_lazy("Note"),
        required=False,
        max_length=2000,
        widget=forms.Textarea(attrs={"rows": 3, "class": "vLargeTextField"}),
    )
    until = forms.DateTimeField(
        label=gettext_lazy("Ignore until"),
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}),
    )
    verb = forms.ChoiceField(
        choices=[(name, name) for name in ("acknowledge", "ignore", "resolve", "reopen")]
    )

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or {}
        if data.get("verb") == "ignore" and "until" not in self.errors:
            until = data.get("until")
            if until is None:
                self.add_error("until", _("Enter the time until which the group is ignored."))
            elif problem := problem_with_until(until):
                self.add_error("until", problem)
        return data


def groups_view(model_admin: ModelAdmin[Any], request: HttpRequest) -> HttpResponse:
    """Show the largest groups of waiting dead letters first."""
    require_view(model_admin, request)
    using = model_admin.get_queryset(request).db
    context: dict[str, Any] = {"cards": []}
    try:
        asked = selection_in(request.GET)
        seen = limited_to(request.user, asked, using)
        context |= _groups_context(model_admin, (asked, seen), _page_number(request), using)
        context |= {"uncollected": _uncollected(request, asked)}
    except BadSelection as error:
        context["problem"] = str(error)
    context |= {
        **form_of(filters_in(request.GET), request.user),
        "list_url": page_url(model_admin, "list"),
    }
    return page(model_admin, request, "failure_groups", _("Dead letters by failure"), **context)


def _groups_context(
    model_admin: ModelAdmin[Any], selections: tuple[Selection, Selection], number: int, using: str
) -> dict[str, Any]:
    asked, selection = selections
    beside = buckets(selection, using=using)
    found, total = groups(
        selection, using=using, limit=PAGE_SIZE, offset=number * PAGE_SIZE, span=TREND_SPAN
    )
    quiet = [group for group in found if _is_quiet(group)]
    return {
        "cards": [card_of(model_admin, group, asked) for group in found if group not in quiet],
        "quiet": [card_of(model_admin, group, asked) for group in quiet],
        "quiet_letters": sum(group.count for group in quiet),
        "total": total,
        "beside": _beside(model_admin, asked, beside),
        "has_more_beside": any(beside.values()),
        "previous": number - 1 if number else None,
        "next": number + 1 if (number + 1) * PAGE_SIZE < total else None,
    }


def _is_quiet(group: Group) -> bool:
    """Whether a person ignored or resolved the group, and it has not come back."""
    quiet = (FailureGroup.Status.IGNORED, FailureGroup.Status.RESOLVED)
    return group.status in quiet and not group.is_back


def _beside(
    model_admin: ModelAdmin[Any], asked: Selection, counts: dict[str, int]
) -> list[tuple[str, int, str]]:
    chosen = waiting(asked)
    queries = {name: chosen.narrowed("kind", SEPARATE_KINDS[name]).query() for name in counts}
    return [
        (str(_TITLES[name]), count, page_url(model_admin, "list", query=queries[name]))
        for name, count in counts.items()
    ]


def _uncollected(request: HttpRequest, asked: Selection) -> list[tuple[str, str]]:
    """Return a text for each DLQ that is not collected, with the URL of its queue."""
    names = {term.text for term in asked.terms if term.name == "queue"}
    return [
        (problem.text, permitted_url(request, "queue_change", queue.name))
        for queue in read_queues()
        if (not names or queue.name in names) and may_see(request.user, [queue.name])
        for problem in dlq_problems(queue)
    ]


def waiting(asked: Selection) -> Selection:
    """Return *asked*, limited to the dead letters that wait."""
    return asked.narrowed("state", DeadLetter.WAITING)


def card_of(model_admin: ModelAdmin[Any], group: Group, asked: Selection) -> Card:
    """Return *group* as a page shows it, counted within *asked*."""
    recent, counted = sum(group.trend), waiting(asked).with_terms(group=group.row.pk)
    words = ngettext(
        "%d was parked in the last 24 hours, including closed ones",
        "%d were parked in the last 24 hours, including closed ones",
        recent,
    )
    return Card(
        group=group,
        bars=bars_of(group.trend),
        trend=words % recent,
        status=str(FailureGroup.Status(_shown_status(group)).label),
        until=group.row.ignored_until if group.status == FailureGroup.Status.IGNORED else None,
        first_seen=ago(group.first_seen),
        last_seen=ago(group.last_seen),
        url=page_url(model_admin, "group", group.row.pk, query=asked.query()),
        list_url=page_url(model_admin, "list", query=counted.query()),
        sample_url=page_url(model_admin, "change", group.sample) if group.sample else "",
    )


def _shown_status(group: Group) -> str:
    """Return the status: a resolved group that came back counts as new."""
    is_resolved = group.status == FailureGroup.Status.RESOLVED
    return FailureGroup.Status.NEW if is_resolved and group.is_back else group.status


def _page_number(request: HttpRequest) -> int:
    text = request.GET.get("page", "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0


def group_view(
    model_admin: ModelAdmin[Any], request: HttpRequest, fingerprint: str
) -> HttpResponse:
    """Show one group; by POST, record a decision about it."""
    require_view(model_admin, request)
    using = model_admin.get_queryset(request).db
    row = _row_of(fingerprint, using)
    queues = queues_of(fingerprint, using) if row and conf.permission else []
    if row is None or (
        conf.permission and not any(may_see(request.user, [each]) for each in queues)
    ):
        raise Http404(_("This group does not exist."))
    denial = denial_for_all(request.user, "redrive", queues)
    form = DecisionForm(request.POST or None, initial={"note": row.note})
    if request.method == "POST":
        if denial:
            raise PermissionDenied
        if form.is_valid():
            return _record_decision(model_admin, request, fingerprint, form.cleaned_data)
    context = {
        "row": row,
        "form": form,
        "denial": denial,
        **_group_context(model_admin, request, row, using),
    }
    return page(model_admin, request, "failure_group", str(row), **context)


def _row_of(fingerprint: str, using: str) -> FailureGroup | None:
    rows = FailureGroup.objects.using(using)
    return rows.filter(pk=fingerprint).first() if is_storable(fingerprint) else None


def _group_context(
    model_admin: ModelAdmin[Any], request: HttpRequest, row: FailureGroup, using: str
) -> dict[str, Any]:
    mine = selection_in(request.GET).with_terms(group=row.pk)
    selection = limited_to(request.user, mine, using)
    group = group_of(row, selection, using=using, span=TREND_SPAN)
    return {
        "card": card_of(model_admin, group, mine),
        "status": FailureGroup.Status(row.status_at(timezone.now())).label,
        "rows": rows_for_list(page_of(matching(selection, using), size=10)),
        "for_all": buttons_for(model_admin, request.user, OPEN, mine.query()),
    }


def _record_decision(
    model_admin: ModelAdmin[Any], request: HttpRequest, fingerprint: str, answers: dict[str, Any]
) -> HttpResponse:
    verb = answers["verb"]
    by, using = request.user.get_username(), database_of(model_admin, request)
    until = answers["until"] if verb == "ignore" else None
    record_decision(fingerprint, verb, by=by, note=answers["note"], until=until, using=using)
    model_admin.message_user(request, _("The group's status was changed."), messages.SUCCESS)
    return redirect(page_url(model_admin, "group", fingerprint, query=request.GET.urlencode()))
