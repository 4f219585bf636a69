"""Derive the problems of the bus from its status. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from django.utils.formats import number_format
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_eventbus.durations import rough
from django_eventbus.monitoring.status_values import COUNT_LIMIT, OutboxStatus, QueueStatus, Status
from django_eventbus.transports.contract import Problem, error, unchecked, warning

#: A relay that works sends a ready event within seconds.
_LATE = timedelta(minutes=1)
#: A sentence names at most this many queues or plans.
_NAMED = 5
#: First what has stopped, then what is not sent, then what waits for a decision.
_BY_URGENCY = (
    "outage", "unconsumed", "lag", "no_relay", "missing", "trouble", "unroutable", "failed",
    "paused", "dead_letters", "dlq",
)  # fmt: skip


def problems(status: Status) -> list[Problem]:
    """Return the problems that a person should solve, the most urgent first."""
    found = [
        *_outages(status),
        *_unconsumed(status),
        *outbox_problems(status.outbox, status.at, has_relay=status.has_relay),
        *_plans(status),
        *_dead_letters(status),
        *(problem for queue in status.queues for problem in _queue_problems(queue)),
    ]
    return sorted(found, key=lambda problem: _BY_URGENCY.index(problem.code))


def summary(found: list[Problem]) -> str:
    """Return one line that says how many problems there are."""
    if not found:
        return _("There are no problems.")
    count = len(found)
    return ngettext("There is %d problem:", "There are %d problems:", count) % count


def number(count: int) -> str:
    """Format a count that was not counted beyond COUNT_LIMIT."""
    if count > COUNT_LIMIT:
        return f"{number_format(COUNT_LIMIT, force_grouping=True)}+"
    return number_format(count, force_grouping=True)


def _outages(status: Status) -> Iterator[Problem]:
    waiting = [each for each in status.live if each.outage and each.outage_since]
    if waiting:
        since = min(each.outage_since for each in waiting if each.outage_since)
        text = ngettext(
            "%(count)d worker has waited for a server for %(age)s (%(kinds)s).",
            "%(count)d workers have waited for a server for %(age)s (%(kinds)s).",
            len(waiting),
        )
        kinds = ", ".join(sorted({each.outage_name for each in waiting}))
        age = rough((status.at - since).total_seconds())
        values = {"count": len(waiting), "kinds": kinds, "age": age}
        yield error("outage", text % values, _("Check that the server is running and reachable."))


def outbox_problems(outbox: OutboxStatus, now: datetime, *, has_relay: bool) -> Iterator[Problem]:
    """Yield the problems of an outbox; *has_relay* says whether a relay is alive."""
    lag = outbox.lag(now)
    if outbox.ready and lag > _LATE:
        text = ngettext(
            "%(count)s event has waited in the outbox for %(age)s.",
            "%(count)s events wait in the outbox, the oldest for %(age)s.",
            outbox.ready,
        )
        values = {"count": number(outbox.ready), "age": rough(lag.total_seconds())}
        if has_relay:
            remedy = _("A relay is running: read its log.")
        else:
            remedy = _("No relay is running: start relay_events, or consume_events --with-relay.")
        yield warning("lag", text % values, remedy, state="ready")
    if outbox.unroutable:
        text = ngettext(
            "%(count)s event was not delivered: no queue is bound to receive it.",
            "%(count)s events were not delivered: no queue is bound to receive them.",
            outbox.unroutable,
        )
        values = {"count": number(outbox.unroutable)}
        remedy = _("Fix the binding, then choose 'Publish again' in the outbox.")
        yield warning("unroutable", text % values, remedy, state="unroutable")
    if outbox.failed:
        text = ngettext(
            "%(count)s event was refused by the broker.",
            "%(count)s events were refused by the broker.",
            outbox.failed,
        )
        values = {"count": number(outbox.failed)}
        remedy = _("Read the reason in the outbox, fix it, then choose 'Publish again' there.")
        yield warning("failed", text % values, remedy, state="failed")


def _plans(status: Status) -> Iterator[Problem]:
    for plan in status.plans:
        if plan.state == "paused":
            is_said = plan.note.startswith(capfirst(_("paused")))
            text = _("Plan %(id)d: %(note)s") if is_said else _("Plan %(id)d is paused: %(note)s")
            values = {"id": plan.id, "note": plan.note}
            remedy = _("Check the dead letters that failed again, then resume or cancel the plan.")
            yield warning("paused", text % values, remedy, plan=plan.id)
    waiting = [each.id for each in status.plans if each.state != "paused"]
    if waiting and not status.has_relay:
        remedy = _("Start relay_events, or consume_events --with-relay.")
        if len(waiting) == 1:
            text = _("Plan %(id)d does not proceed: no relay is running.") % {"id": waiting[0]}
            yield warning("no_relay", text, remedy, plan=waiting[0])
        else:
            text = _("%(count)d plans do not proceed (%(names)s): no relay is running.")
            values = {"count": len(waiting), "names": _listed([str(each) for each in waiting])}
            yield warning("no_relay", text % values, remedy, plans=waiting)


def _listed(names: list[str]) -> str:
    return ", ".join([*names[:_NAMED], *(["…"] if len(names) > _NAMED else [])])


def _dead_letters(status: Status) -> Iterator[Problem]:
    letters = status.dead_letters
    if letters.open:
        text = ngettext(
            "%(count)s dead letter waits for a decision (%(new)s new in the last hour).",
            "%(count)s dead letters wait for a decision (%(new)s new in the last hour).",
            letters.open,
        )
        values = {"count": number(letters.open), "new": number(letters.new_in_hour)}
        remedy = _("Re-drive or discard the open dead letters.")
        yield warning("dead_letters", text % values, remedy)


def _unconsumed(status: Status) -> Iterator[Problem]:
    names = [queue.name for queue in status.queues if not queue.consumers]
    remedy = _("Start consume_events.")
    if len(names) == 1:
        text = _("The queue %(queue)s has no consumer.") % {"queue": names[0]}
        yield warning("unconsumed", text, remedy, queue=names[0])
    elif names:
        text = _("%(count)d queues have no consumer (%(names)s).")
        values = {"count": len(names), "names": _listed(names)}
        yield warning("unconsumed", text % values, remedy, queues=names)


def _queue_problems(queue: QueueStatus) -> Iterator[Problem]:
    if queue.trouble:
        text = _("The queue %(queue)s could not be measured: %(trouble)s")
        values = {"queue": queue.name, "trouble": queue.trouble}
        remedy = _("Run eventbus_doctor, which says more.")
        yield unchecked("trouble", text % values, remedy, queue=queue.name)
    elif queue.measured_at and queue.messages is None:
        text = _("The broker has no queue %(queue)s.") % {"queue": queue.name}
        remedy = _("Start a worker, which declares the queue.")
        yield error("missing", text, remedy, queue=queue.name)
    yield from dlq_problems(queue)


def dlq_problems(queue: QueueStatus) -> Iterator[Problem]:
    """Yield the problem that the DLQ of *queue* holds messages and no consumer collects them."""
    if queue.dlq_messages and not queue.is_collected:
        text = ngettext(
            "%(count)s message is in %(dlq)s, and no consumer collects it.",
            "%(count)s messages are in %(dlq)s, and no consumer collects them.",
            queue.dlq_messages,
        )
        values = {"count": number(queue.dlq_messages), "dlq": queue.dlq}
        remedy = _("Inspect the DLQ with eventbus_dlq, then run redrive_events --from-broker.")
        yield warning("dlq", text % values, remedy, queue=queue.name)
