"""The dashboard: one look says whether anything needs doing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.contrib.admin.utils import quote
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.functional import Promise
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from django_eventbus.admin.plan_progress import state_in_words
from django_eventbus.admin.plots import Plot, plots_of
from django_eventbus.durations import rough
from django_eventbus.figures import DeadLetterFigures, QueueFigures, Status, WorkerFigures
from django_eventbus.models import Plan, Worker
from django_eventbus.needs import Need, needs, number, verdict
from django_eventbus.permissions import sees
from django_eventbus.status import look

#: Who may see it: the figures of the whole bus, and no message.
PERMISSION = "eventbus.view_worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A figure, with a link to where its rows are."""

    name: str
    figure: str
    note: str = ""
    url: str = ""
    is_bad: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A row of a table, with what is to be read in it."""

    row: Any
    url: str = ""
    kind: str | Promise = ""
    state: str = ""
    is_bad: bool = False


def dashboard_of(request: HttpRequest) -> dict[str, Any]:
    """Return what the template needs: a reason instead, if the user may not see it."""
    if not request.user.has_perm(PERMISSION):
        return {"why_not": _("You need the permission %(name)s.") % {"name": PERMISSION}}
    status = seen_by(request.user, look())
    found = needs(status)
    return {
        "status": status,
        "verdict": verdict(found),
        "needs": [(need, link_of(request, need, status)) for need in found],
        "tiles": tiles_of(request, status),
        "plots": plots(status),
        "queues": [
            Figure(
                row=each,
                url=url(request, "queue_change", each.name) if each.is_known else "",
                state=measured(each, status.at),
                is_bad=bool(each.trouble) or not each.is_measured,
            )
            for each in status.queues
        ],
        "workers": [
            Figure(
                row=each,
                kind=Worker.Kind(each.kind).label,
                state=state_of(each, status.at),
                is_bad=not each.is_live or bool(each.outage),
            )
            for each in status.workers
        ],
        "plans": [
            Figure(
                row=each,
                url=url(request, "plan_change", each.id),
                kind=Plan.Action(each.action).label,
                state=" ".join(filter(None, state_in_words(each.state, each.note))),
            )
            for each in status.plans
        ],
    }


def seen_by(user: Any, status: Status) -> Status:
    """Return *status* without what it tells of queues that *user* may not look at."""
    workers = [
        replace(worker, queues=tuple(each for each in worker.queues if sees(user, [each])))
        for worker in status.workers
    ]
    return replace(
        status,
        queues=tuple(each for each in status.queues if sees(user, [each.name])),
        plans=tuple(each for each in status.plans if sees(user, each.queues)),
        workers=tuple(workers),
    )


def plots(status: Status) -> list[tuple[Plot, Plot]]:
    """Return the plots of the last hour and of the last day, in pairs."""
    by_minute = _("%(total)s in the last hour, at most %(highest)s a minute")
    by_quarter = _("%(total)s in the last day, at most %(highest)s in a quarter of an hour")
    hour, day = plots_of(status.hour, by_minute), plots_of(status.day, by_quarter)
    return list(zip(hour, day, strict=True))


def tiles_of(request: HttpRequest, status: Status) -> list[Tile]:
    """Return the backlogs, each with its link."""
    outbox, letters = status.outbox, status.dead_letters
    return [
        Tile(
            name=_("Ready in the outbox"),
            figure=number(outbox.ready),
            note=_("the oldest for %(age)s") % {"age": age(status.at, outbox.oldest_ready_at)}
            if outbox.oldest_ready_at
            else "",
            url=listed(request, "outboxevent", state__exact="ready"),
        ),
        _outbox_tile(request, _("Scheduled"), outbox.scheduled, "scheduled"),
        _outbox_tile(request, _("Unroutable"), outbox.unroutable, "unroutable", is_bad=True),
        _outbox_tile(request, _("Refused by the broker"), outbox.failed, "failed", is_bad=True),
        Tile(
            name=_("Dead letters"),
            figure=number(letters.open),
            note=_about_letters(letters),
            url=listed(request, "deadletter"),
            is_bad=bool(letters.open),
        ),
        Tile(name=_("Re-driving"), figure=number(letters.redriving)),
    ]


def _about_letters(letters: DeadLetterFigures) -> str:
    words = _("%(hour)s new within the hour, %(day)s within the day")
    found = words % {"hour": number(letters.new_in_hour), "day": number(letters.new_in_day)}
    if not letters.ignored:
        return found
    return f"{found}; " + _("%(count)s ignored for now") % {"count": number(letters.ignored)}


def _outbox_tile(
    request: HttpRequest, name: str, count: int, state: str, *, is_bad: bool = False
) -> Tile:
    address = listed(request, "outboxevent", state__exact=state)
    return Tile(name=name, figure=number(count), url=address, is_bad=is_bad and bool(count))


def age(now: datetime, then: datetime | None) -> str:
    """Write how long ago *then* was."""
    return rough((now - then).total_seconds()) if then else "-"


def measured(queue: QueueFigures, now: datetime) -> str:
    """Say how old the figures of a queue are, and why there are no younger ones."""
    if queue.measured_at is None:
        return queue.trouble or _("never looked at: no worker runs")
    words = _("%(age)s ago") % {"age": age(now, queue.measured_at)}
    return f"{words}: {queue.trouble}" if queue.trouble else words


def state_of(worker: WorkerFigures, now: datetime) -> str:
    """Say how a worker is."""
    if not worker.is_live:
        return _("not heard of for %(age)s") % {"age": age(now, worker.seen_at)}
    if worker.outage:
        words = _("waits for a server for %(age)s (%(kind)s)")
        return words % {"kind": worker.outage_name, "age": age(now, worker.outage_since)}
    return _("finishes its work") if worker.is_stopping else _("works")


def link_of(request: HttpRequest, need: Need, status: Status) -> str:
    """Return the page where *need* is seen to; "" where the user may not go."""
    match need.code:
        case "outage":
            return listed(request, "worker")
        case "lag" | "unroutable" | "failed":
            return listed(request, "outboxevent", state__exact=need.about["state"])
        case "dead_letters":
            return listed(request, "deadletter")
        case "forsaken" | "paused" if "plan" in need.about:
            return url(request, "plan_change", need.about["plan"])
        case "forsaken" | "unconsumed" if "queue" not in need.about:
            return listed(request, "plan" if "plans" in need.about else "queue")
    name = need.about["queue"]
    is_known = any(each.name == name and each.is_known for each in status.queues)
    return url(request, "queue_change", name) if is_known else ""


def listed(request: HttpRequest, model: str, **query: str) -> str:
    """Return the list of *model*, filtered by *query*."""
    address = url(request, f"{model}_changelist")
    return f"{address}?{urlencode(query)}" if address and query else address


def url(request: HttpRequest, name: str, *args: Any) -> str:
    """Return the page *name* of the admin; "" if there is none, or the user may not see it."""
    model = name.partition("_")[0]
    if not request.user.has_perm(f"eventbus.view_{model}"):
        return ""
    try:
        quoted = [quote(each) for each in args]
        return reverse(f"admin:eventbus_{name}", args=quoted, current_app=_site(request))
    except NoReverseMatch:
        return ""


def _site(request: HttpRequest) -> str | None:
    return getattr(request, "current_app", None)
