"""What needs doing, decided by the status alone. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.utils.formats import number_format
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_eventbus.durations import rough
from django_eventbus.figures import MOST, QueueFigures, Status
from django_eventbus.sentences import translated

#: A relay that works takes what is ready within seconds.
_LATE = timedelta(minutes=1)
#: Of many queues or plans in one sentence, so many are named.
_NAMED = 5
#: What stands still, then what is not sent, then what waits for a person.
_BY_URGENCY = (
    "outage", "unconsumed", "lag", "forsaken", "missing", "trouble", "unroutable", "failed",
    "paused", "dead_letters", "dlq",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Something that a person should do, and what it is about."""

    code: str
    #: In words, for whoever reads it now.
    words: str
    #: What the page where it is done has to be told: a queue, or a state.
    about: dict[str, Any] = field(default_factory=dict)


def needs(status: Status) -> list[Need]:
    """Return what needs doing, the most urgent first."""
    found = [
        *_about_outages(status),
        *_about_consumers(status),
        *_about_the_outbox(status),
        *_about_plans(status),
        *_about_dead_letters(status),
        *(need for queue in status.queues for need in _about_queue(queue)),
    ]
    return sorted(found, key=lambda need: _BY_URGENCY.index(need.code))


def verdict(found: list[Need]) -> str:
    """Say in a line whether anything needs doing."""
    if not found:
        return _("Nothing needs doing.")
    count = len(found)
    return ngettext("%d thing needs doing:", "%d things need doing:", count) % count


def number(count: int) -> str:
    """Write a count that was not counted further than to MOST."""
    if count > MOST:
        return f"{number_format(MOST, force_grouping=True)}+"
    return number_format(count, force_grouping=True)


def _about_outages(status: Status) -> Iterator[Need]:
    waiting = [each for each in status.live if each.outage and each.outage_since]
    if waiting:
        since = min(each.outage_since for each in waiting if each.outage_since)
        words = ngettext(
            "%(count)d worker has waited for a server for %(age)s (%(kinds)s).",
            "%(count)d workers have waited for a server for %(age)s (%(kinds)s).",
            len(waiting),
        )
        kinds = ", ".join(sorted({each.outage_name for each in waiting}))
        age = rough((status.at - since).total_seconds())
        values = {"count": len(waiting), "kinds": kinds, "age": age}
        yield Need(code="outage", words=words % values)


def _about_the_outbox(status: Status) -> Iterator[Need]:
    outbox = status.outbox
    lag = outbox.lag(status.at)
    if outbox.ready and lag > _LATE:
        values = {"count": number(outbox.ready), "age": rough(lag.total_seconds())}
        if status.has_relay:
            words = _("The outbox lags: %(count)s wait, the oldest for %(age)s.")
        else:
            words = _("No relay runs: %(count)s wait in the outbox, the oldest for %(age)s.")
        yield Need(code="lag", words=words % values, about={"state": "ready"})
    if outbox.unroutable:
        words = ngettext(
            "%(count)s event found no queue that takes it.",
            "%(count)s events found no queue that takes them.",
            outbox.unroutable,
        )
        values = {"count": number(outbox.unroutable)}
        yield Need(code="unroutable", words=words % values, about={"state": "unroutable"})
    if outbox.failed:
        words = ngettext(
            "%(count)s event was refused by the broker.",
            "%(count)s events were refused by the broker.",
            outbox.failed,
        )
        values = {"count": number(outbox.failed)}
        yield Need(code="failed", words=words % values, about={"state": "failed"})


def _about_plans(status: Status) -> Iterator[Need]:
    for plan in status.plans:
        if plan.state == "paused":
            note = translated(plan.note)
            is_said = note.startswith(capfirst(_("paused")))
            words = _("Plan %(id)d: %(note)s") if is_said else _("Plan %(id)d is paused: %(note)s")
            values = {"id": plan.id, "note": note}
            yield Need(code="paused", words=words % values, about={"plan": plan.id})
    if not status.has_relay:
        yield from _about_forsaken([each.id for each in status.plans if each.state != "paused"])


def _about_forsaken(plans: list[int]) -> Iterator[Need]:
    if len(plans) == 1:
        words = _("Plan %(id)d stands still, as no relay is alive: start relay_events.")
        yield Need(code="forsaken", words=words % {"id": plans[0]}, about={"plan": plans[0]})
    elif plans:
        words = _(
            "%(count)d plans stand still (%(names)s), as no relay is alive: start relay_events."
        )
        values = {"count": len(plans), "names": _listed([str(each) for each in plans])}
        yield Need(code="forsaken", words=words % values, about={"plans": plans})


def _listed(names: list[str]) -> str:
    return ", ".join([*names[:_NAMED], *(["…"] if len(names) > _NAMED else [])])


def _about_dead_letters(status: Status) -> Iterator[Need]:
    letters = status.dead_letters
    if letters.open:
        words = ngettext(
            "%(count)s dead letter waits for a person (%(new)s new within the hour).",
            "%(count)s dead letters wait for a person (%(new)s new within the hour).",
            letters.open,
        )
        values = {"count": number(letters.open), "new": number(letters.new_in_hour)}
        yield Need(code="dead_letters", words=words % values)


def _about_consumers(status: Status) -> Iterator[Need]:
    names = [queue.name for queue in status.queues if not queue.consumers]
    if len(names) == 1:
        words = _("Nothing consumes %(queue)s: start consume_events.") % {"queue": names[0]}
        yield Need(code="unconsumed", words=words, about={"queue": names[0]})
    elif names:
        words = _("Nothing consumes %(count)d queues (%(names)s): start consume_events.")
        values = {"count": len(names), "names": _listed(names)}
        yield Need(code="unconsumed", words=words % values, about={"queues": names})


def _about_queue(queue: QueueFigures) -> Iterator[Need]:
    about = {"queue": queue.name}
    if queue.trouble:
        words = _("%(queue)s cannot be looked at: %(trouble)s")
        values = {"queue": queue.name, "trouble": queue.trouble}
        yield Need(code="trouble", words=words % values, about=about)
    elif queue.measured_at and queue.messages is None:
        words = _("The broker has no queue %(queue)s: start a worker, which declares it.")
        yield Need(code="missing", words=words % {"queue": queue.name}, about=about)
    yield from about_dlq(queue)


def about_dlq(queue: QueueFigures) -> Iterator[Need]:
    """Say what lies in the DLQ of *queue*, if nobody collects it."""
    if queue.dlq_messages and not queue.is_collected:
        words = ngettext(
            "%(count)s message lies in %(dlq)s, which nobody collects.",
            "%(count)s messages lie in %(dlq)s, which nobody collects.",
            queue.dlq_messages,
        )
        values = {"count": number(queue.dlq_messages), "dlq": queue.dlq}
        yield Need(code="dlq", words=words % values, about={"queue": queue.name})
