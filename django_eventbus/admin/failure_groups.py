"""Dead letters by failure: the groups, what lies beside them, and what people decide."""

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

from django_eventbus.admin.dashboard import url
from django_eventbus.admin.dead_letter_verbs import buttons_for
from django_eventbus.admin.dry_run import database_of
from django_eventbus.admin.filters import filters_in, form_of, seen_by, selection_in
from django_eventbus.admin.outcomes import lines_of
from django_eventbus.admin.pages import page, require_view, url_of
from django_eventbus.admin.read_only import ago
from django_eventbus.admin.trends import Bar, bars_of
from django_eventbus.admin.until import problem_with_until
from django_eventbus.conf import conf
from django_eventbus.exceptions import BadSelection
from django_eventbus.failure_groups import (
    BESIDE,
    Group,
    buckets,
    decide,
    group_of,
    groups,
    queues_of,
)
from django_eventbus.matching import letters_of, page_of
from django_eventbus.messages import is_storable
from django_eventbus.models import DeadLetter, FailureGroup
from django_eventbus.needs import about_dlq
from django_eventbus.permissions import sees, why_not_everywhere
from django_eventbus.selections import Selection
from django_eventbus.status import queue_figures

SIZE = 50
SPAN = timedelta(days=1)
OPEN = Selection.of([("state", str(DeadLetter.State.OPEN))])
_TITLES = {
    "undecodable": gettext_lazy("Undecodable"),
    "unmatched": gettext_lazy("Unmatched"),
    "broker": gettext_lazy("Dead on the broker"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A group with its plot and its pages."""

    group: Group
    bars: list[Bar]
    trend: str
    status: str
    #: When it is new again, if it is ignored.
    until: datetime | None
    first_seen: str
    last_seen: str
    url: str
    list_url: str
    sample_url: str


class DecisionForm(forms.Form):
    """What is decided about a group."""

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
            self._check_until(data.get("until"))
        return data

    def _check_until(self, until: datetime | None) -> None:
        if until is None:
            self.add_error("until", _("Say until when it is to be ignored."))
        elif problem := problem_with_until(until):
            self.add_error("until", problem)


def groups_view(screen: ModelAdmin[Any], request: HttpRequest) -> HttpResponse:
    """Show the largest groups of waiting dead letters first."""
    require_view(screen, request)
    using = screen.get_queryset(request).db
    context: dict[str, Any] = {"cards": []}
    try:
        asked = selection_in(request.GET)
        seen = seen_by(request.user, asked, using)
        context |= _found(screen, (asked, seen), _page_number(request), using)
        context |= {"uncollected": _uncollected(request, asked)}
    except BadSelection as error:
        context["problem"] = str(error)
    context |= {
        **form_of(filters_in(request.GET), request.user),
        "list_url": url_of(screen, "list"),
    }
    return page(screen, request, "failure_groups", _("Dead letters by failure"), **context)


def _found(
    screen: ModelAdmin[Any], selections: tuple[Selection, Selection], number: int, using: str
) -> dict[str, Any]:
    asked, selection = selections
    beside = buckets(selection, using=using)
    found, total = groups(selection, using=using, limit=SIZE, offset=number * SIZE, span=SPAN)
    quiet = [group for group in found if _is_quiet(group)]
    return {
        "cards": [card_of(screen, group, asked) for group in found if group not in quiet],
        "quiet": [card_of(screen, group, asked) for group in quiet],
        "quiet_letters": sum(group.count for group in quiet),
        "total": total,
        "beside": _beside(screen, asked, beside),
        "is_more_beside": any(beside.values()),
        "previous": number - 1 if number else None,
        "next": number + 1 if (number + 1) * SIZE < total else None,
    }


def _is_quiet(group: Group) -> bool:
    """Whether a person has said that nothing is to be done about it now, and it holds."""
    quiet = (FailureGroup.Status.IGNORED, FailureGroup.Status.RESOLVED)
    return group.status in quiet and not group.is_back


def _beside(
    screen: ModelAdmin[Any], asked: Selection, counts: dict[str, int]
) -> list[tuple[str, int, str]]:
    chosen = waiting(asked)
    queries = {name: chosen.narrowed("kind", BESIDE[name]).query() for name in counts}
    return [
        (str(_TITLES[name]), count, url_of(screen, "list", query=queries[name]))
        for name, count in counts.items()
    ]


def _uncollected(request: HttpRequest, asked: Selection) -> list[tuple[str, str]]:
    """Return what lies in DLQs that nobody collects, in words, each with the page of its queue."""
    names = {term.text for term in asked.terms if term.name == "queue"}
    return [
        (need.words, url(request, "queue_change", queue.name))
        for queue in queue_figures()
        if (not names or queue.name in names) and sees(request.user, [queue.name])
        for need in about_dlq(queue)
    ]


def waiting(asked: Selection) -> Selection:
    """Return what of *asked* is counted: what is not closed."""
    return asked.narrowed("state", DeadLetter.WAITING)


def card_of(screen: ModelAdmin[Any], group: Group, asked: Selection) -> Card:
    """Return *group*, of which *asked* is counted, as a page shows it."""
    fresh, counted = sum(group.trend), waiting(asked).with_terms(group=group.row.pk)
    words = ngettext(
        "%d came in the last 24 hours, closed ones included",
        "%d came in the last 24 hours, closed ones included",
        fresh,
    )
    return Card(
        group=group,
        bars=bars_of(group.trend),
        trend=words % fresh,
        status=str(FailureGroup.Status(_shown_status(group)).label),
        until=group.row.ignored_until if group.status == FailureGroup.Status.IGNORED else None,
        first_seen=ago(group.first_seen),
        last_seen=ago(group.last_seen),
        url=url_of(screen, "group", group.row.pk, query=asked.query()),
        list_url=url_of(screen, "list", query=counted.query()),
        sample_url=url_of(screen, "change", group.sample) if group.sample else "",
    )


def _shown_status(group: Group) -> str:
    """Return the status; of what is back, resolved holds no more."""
    is_resolved = group.status == FailureGroup.Status.RESOLVED
    return FailureGroup.Status.NEW if is_resolved and group.is_back else group.status


def _page_number(request: HttpRequest) -> int:
    text = request.GET.get("page", "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0


def group_view(screen: ModelAdmin[Any], request: HttpRequest, fingerprint: str) -> HttpResponse:
    """Show one group; by POST, decide about it."""
    require_view(screen, request)
    using = screen.get_queryset(request).db
    row = _row_of(fingerprint, using)
    queues = queues_of(fingerprint, using) if row and conf.permission else []
    if row is None or (conf.permission and not any(sees(request.user, [each]) for each in queues)):
        raise Http404(_("There is no such group."))
    refusal = why_not_everywhere(request.user, "redrive", queues)
    form = DecisionForm(request.POST or None, initial={"note": row.note})
    if request.method == "POST":
        if refusal:
            raise PermissionDenied
        if form.is_valid():
            return _decided(screen, request, fingerprint, form.cleaned_data)
    context = {"row": row, "form": form, "why_not": refusal, **_one(screen, request, row, using)}
    return page(screen, request, "failure_group", str(row), **context)


def _row_of(fingerprint: str, using: str) -> FailureGroup | None:
    rows = FailureGroup.objects.using(using)
    return rows.filter(pk=fingerprint).first() if is_storable(fingerprint) else None


def _one(
    screen: ModelAdmin[Any], request: HttpRequest, row: FailureGroup, using: str
) -> dict[str, Any]:
    mine = selection_in(request.GET).with_terms(group=row.pk)
    selection = seen_by(request.user, mine, using)
    group = group_of(row, selection, using=using, span=SPAN)
    return {
        "card": card_of(screen, group, mine),
        "status": FailureGroup.Status(row.status_at(timezone.now())).label,
        "lines": lines_of(page_of(letters_of(selection, using), size=10)),
        "for_all": buttons_for(screen, request.user, OPEN, mine.query()),
    }


def _decided(
    screen: ModelAdmin[Any], request: HttpRequest, fingerprint: str, answers: dict[str, Any]
) -> HttpResponse:
    verb = answers["verb"]
    by, using = request.user.get_username(), database_of(screen, request)
    until = answers["until"] if verb == "ignore" else None
    decide(fingerprint, verb, by=by, note=answers["note"], until=until, using=using)
    screen.message_user(request, _("The group's status was changed."), messages.SUCCESS)
    return redirect(url_of(screen, "group", fingerprint, query=request.GET.urlencode()))
