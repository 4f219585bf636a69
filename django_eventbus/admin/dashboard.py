"""The dashboard: the problems of the bus, its throughput, backlogs, queues and workers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.utils.functional import Promise
from django.utils.translation import gettext as _

from django_eventbus.admin.charts import Plot, plots_of
from django_eventbus.admin.pages import changelist_url, permitted_url
from django_eventbus.admin.permissions import may_see, missing_permission
from django_eventbus.admin.plans import state_in_words
from django_eventbus.durations import rough
from django_eventbus.models import Plan, Worker
from django_eventbus.monitoring.problems import number, problems, summary
from django_eventbus.monitoring.status import read_status
from django_eventbus.monitoring.status_values import (
    DeadLetterStatus,
    QueueStatus,
    Status,
    WorkerStatus,
)
from django_eventbus.transports.contract import Problem

#: Needed to see the dashboard, which has the figures of the whole bus and no message.
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
    """A row of a table, with its texts and its link."""

    row: Any
    url: str = ""
    kind: str | Promise = ""
    state: str = ""
    is_bad: bool = False


def dashboard_of(request: HttpRequest) -> dict[str, Any]:
    """Return the context of the template; only a denial if the user may not see it."""
    if not request.user.has_perm(PERMISSION):
        return {"denial": missing_permission(request.user, PERMISSION)}
    status = visible_status(request.user, read_status())
    found = problems(status)
    return {
        "status": status,
        "summary": summary(found),
        "problems": [(each, link_of(request, each, status)) for each in found],
        "tiles": tiles_of(request, status),
        "plots": plots(status),
        "queues": [
            Figure(
                row=each,
                url=permitted_url(request, "queue_change", each.name) if each.is_known else "",
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
                url=permitted_url(request, "plan_change", each.id),
                kind=Plan.Action(each.action).label,
                state=" ".join(filter(None, state_in_words(each.state, each.note))),
            )
            for each in status.plans
        ],
    }


def visible_status(user: Any, status: Status) -> Status:
    """Return *status* without the queues that *user* may not see."""
    workers = [
        replace(worker, queues=tuple(each for each in worker.queues if may_see(user, [each])))
        for worker in status.workers
    ]
    return replace(
        status,
        queues=tuple(each for each in status.queues if may_see(user, [each.name])),
        plans=tuple(each for each in status.plans if may_see(user, each.queues)),
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
            url=changelist_url(request, "outboxevent", state__exact="ready"),
        ),
        _outbox_tile(request, _("Scheduled"), outbox.scheduled, "scheduled"),
        _outbox_tile(request, _("Unroutable"), outbox.unroutable, "unroutable", is_bad=True),
        _outbox_tile(request, _("Refused by the broker"), outbox.failed, "failed", is_bad=True),
        Tile(
            name=_("Dead letters"),
            figure=number(letters.open),
            note=_about_letters(letters),
            url=changelist_url(request, "deadletter"),
            is_bad=bool(letters.open),
        ),
        Tile(name=_("Re-driving"), figure=number(letters.redriving)),
    ]


def _about_letters(letters: DeadLetterStatus) -> str:
    words = _("%(hour)s new in the last hour, %(day)s in the last day")
    found = words % {"hour": number(letters.new_in_hour), "day": number(letters.new_in_day)}
    if not letters.ignored:
        return found
    return f"{found}; " + _("%(count)s ignored for now") % {"count": number(letters.ignored)}


def _outbox_tile(
    request: HttpRequest, name: str, count: int, state: str, *, is_bad: bool = False
) -> Tile:
    address = changelist_url(request, "outboxevent", state__exact=state)
    return Tile(name=name, figure=number(count), url=address, is_bad=is_bad and bool(count))


def age(now: datetime, then: datetime | None) -> str:
    """Write how long ago *then* was."""
    return rough((now - then).total_seconds()) if then else "-"


def measured(queue: QueueStatus, now: datetime) -> str:
    """Return the age of a queue's measurement, and why there is no newer one."""
    if queue.measured_at is None:
        return queue.trouble or _("never measured: no worker is running")
    words = _("%(age)s ago") % {"age": age(now, queue.measured_at)}
    return f"{words}: {queue.trouble}" if queue.trouble else words


def state_of(worker: WorkerStatus, now: datetime) -> str:
    """Return the state of a worker in a few words."""
    if not worker.is_live:
        return _("no heartbeat for %(age)s") % {"age": age(now, worker.seen_at)}
    if worker.outage:
        words = _("waits for a server for %(age)s (%(kind)s)")
        return words % {"kind": worker.outage_name, "age": age(now, worker.outage_since)}
    return _("finishes its work") if worker.is_stopping else _("works")


def link_of(request: HttpRequest, problem: Problem, status: Status) -> str:
    """Return the page where *problem* can be solved; "" if the user may not view it."""
    match problem.code:
        case "outage":
            return changelist_url(request, "worker")
        case "lag" | "unroutable" | "failed":
            return changelist_url(request, "outboxevent", state__exact=problem.about["state"])
        case "dead_letters":
            return changelist_url(request, "deadletter")
        case "no_relay" | "paused" if "plan" in problem.about:
            return permitted_url(request, "plan_change", problem.about["plan"])
        case "no_relay" | "unconsumed" if "queue" not in problem.about:
            return changelist_url(request, "plan" if "plans" in problem.about else "queue")
    name = problem.about["queue"]
    is_known = any(each.name == name and each.is_known for each in status.queues)
    return permitted_url(request, "queue_change", name) if is_known else ""
