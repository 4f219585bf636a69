"""The timeline of a dead letter: from its publication to what came of its re-drives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.db import DEFAULT_DB_ALIAS
from django.http import HttpRequest
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_eventbus.admin.dashboard import url
from django_eventbus.admin.excerpts import short, visible
from django_eventbus.admin.outcomes import note_of
from django_eventbus.admin.read_only import localised
from django_eventbus.admin.related import attempts_of
from django_eventbus.admin.replacements import replacement_of
from django_eventbus.exceptions import BadSelection
from django_eventbus.matching import letters_of
from django_eventbus.messages import (
    EDITED_FROM,
    NOT_BEFORE,
    REDRIVEN_BY,
    REDRIVEN_COUNT,
    RETRY_COUNT,
)
from django_eventbus.models import (
    Attempt,
    AuditEntry,
    DeadLetter,
    OutboxEvent,
    Plan,
    PlannedLetter,
)
from django_eventbus.permissions import sees
from django_eventbus.selections import Selection

ROWS_LIMIT = 100
#: Entries of the audit that name the same time.
IGNORES_LIMIT = 10
#: What a database rounds away, and what passes between two writes of one transaction.
_SAME = timedelta(seconds=1)
#: What a plan did to a dead letter, by the state of its row.
_CLOSED: dict[str, str | Promise] = {
    PlannedLetter.State.DISCARDED: gettext_lazy("Discarded by %(by)s"),
    PlannedLetter.State.RESTORED: gettext_lazy("Restored by %(by)s"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Something that happened to the message."""

    at: datetime
    title: str
    details: tuple[str, ...] = ()
    #: Words, each with the page that it leads to; "" if the user may see none.
    links: tuple[tuple[str, str], ...] = ()
    error: str = ""
    #: "good" or "bad", told by a sign and a colour.
    tone: str = ""
    #: Among moments of the same time: what comes first.
    order: int = field(default=0)


def timeline_of(request: HttpRequest, letter: DeadLetter) -> list[Moment]:
    """Return what happened to the message of *letter*, as far as it is recorded, in order."""
    attempts, planned = attempts_of(letter), _planned(letter)
    moments = [
        *_sending(request, letter, planned),
        *(_attempt(each) for each in attempts),
        *_parkings(letter, attempts),
        *(_closed(request, each) for each in planned if each.state in _CLOSED),
        *_ignored(letter),
        *_end(request, letter, planned),
    ]
    return sorted(moments, key=lambda moment: (moment.at, moment.order))


def _planned(letter: DeadLetter) -> list[PlannedLetter]:
    rows = PlannedLetter.objects.using(letter._state.db).filter(dead_letter=letter)
    return list(rows.select_related("plan").order_by("-plan_id")[:ROWS_LIMIT])


def pending_plans_of(request: HttpRequest, letter: DeadLetter) -> list[tuple[str, str]]:
    """Return the plans in which *letter* has still to have its turn: names and addresses."""
    waiting = PlannedLetter.objects.using(letter._state.db).filter(
        dead_letter=letter, round=letter.round, state=PlannedLetter.State.PENDING
    )
    found = waiting.filter(plan__ended_at__isnull=True).select_related("plan").order_by("plan_id")
    return [link for each in found[:ROWS_LIMIT] for link in _links(request, each.plan)]


def _links(request: HttpRequest, plan: Plan) -> tuple[tuple[str, str], ...]:
    address = url(request, "plan_change", plan.pk) if sees(request.user, plan.queues) else ""
    return ((_("Plan %(id)d") % {"id": plan.pk}, address),)


def _closed(request: HttpRequest, planned: PlannedLetter) -> Moment:
    plan = planned.plan
    title = str(_CLOSED[planned.state]) % {"by": visible(plan.created_by)}
    return Moment(
        at=planned.settled_at or plan.created_at,
        title=title,
        details=(visible(plan.reason),),
        links=_links(request, plan),
        order=4,
    )


def _ignored(letter: DeadLetter) -> Iterator[Moment]:
    """Yield who put it out of sight, if it is: the audit has it by the time until when."""
    if letter.ignored_until is None:
        return
    using = letter._state.db or DEFAULT_DB_ALIAS
    until = letter.ignored_until.astimezone(UTC).isoformat()
    entries = AuditEntry.objects.using(using).filter(verb=AuditEntry.Verb.IGNORE)
    for entry in entries.filter(outcome__until=until).order_by("-at")[:IGNORES_LIMIT]:
        if _is_about(entry, letter, using):
            time = f"{localised(letter.ignored_until):%Y-%m-%d %H:%M}"
            words = _("Ignored by %(by)s until %(time)s")
            title = words % {"by": visible(entry.by), "time": time}
            yield Moment(at=entry.at, title=title, details=(visible(entry.why),), order=4)
            return


def _is_about(entry: AuditEntry, letter: DeadLetter, using: str) -> bool:
    try:
        # What has become of it since is not asked.
        meant = Selection.from_query(entry.filter).without("state", "ignored", "as_of")
    except BadSelection:
        return False
    return letters_of(meant, using).filter(pk=letter.pk).exists()


def _sending(
    request: HttpRequest, letter: DeadLetter, planned: list[PlannedLetter]
) -> Iterator[Moment]:
    ids = [each for each in (letter.message_id, letter.replaced_by) if each]
    rows = OutboxEvent.objects.using(letter._state.db).filter(message_id__in=ids)
    mine = rows.filter(queue__in=("", letter.queue), subscription__in=("", letter.subscription))
    found = list(mine.defer("body").order_by("id")[:ROWS_LIMIT])
    if not any(not row.is_addressed for row in found) and letter.sent_at:
        source = visible(letter.source) or _("a stranger")
        yield Moment(at=letter.sent_at, title=_("Published by %(source)s") % {"source": source})
    plans = {each.round + 1: each.plan for each in planned if each.sent_at}
    for row in found:
        plan = plans.get(_round_of(row))
        yield from _sent(row, _links(request, plan) if plan else ())


def _round_of(row: OutboxEvent) -> int:
    """Return which re-drive the row is; 0: it is none, but the event itself, or a retry."""
    is_redrive = row.is_addressed and not _is_for_later(row)
    return row.message().round if is_redrive else 0


def _is_for_later(row: OutboxEvent) -> bool:
    headers = row.headers
    is_late = headers.get(RETRY_COUNT) or headers.get(NOT_BEFORE)
    return bool(is_late or not headers.get(REDRIVEN_COUNT))


def _sent(row: OutboxEvent, links: tuple[tuple[str, str], ...]) -> Iterator[Moment]:
    if title := _title(row):
        details = tuple(_destination(row))
        yield Moment(at=row.created_at, title=title, details=details, links=links)
    if row.published_at:
        yield Moment(at=row.published_at, title=_("Relayed and confirmed by the broker"), order=1)
    elif row.error:
        outcome = row.get_state_display()
        yield Moment(
            at=row.created_at, title=outcome.capitalize(), error=short(row.error), tone="bad"
        )


def _title(row: OutboxEvent) -> str:
    headers = row.headers
    if not row.is_addressed:
        return _("Published by %(source)s") % {"source": row.source}
    if _is_for_later(row):
        return _("Sent again, for later")
    words = {"by": visible(str(headers.get(REDRIVEN_BY, ""))), "round": headers[REDRIVEN_COUNT]}
    if headers.get(EDITED_FROM):
        return _("Edited and re-driven by %(by)s: round %(round)s") % words
    return _("Re-driven by %(by)s: round %(round)s") % words


def _destination(row: OutboxEvent) -> Iterator[str]:
    if row.is_addressed:
        yield _("to the queue %(queue)s") % {"queue": row.queue}
    elif row.exchange:
        words = {"exchange": row.exchange, "key": row.routing_key}
        yield _("to %(exchange)s with the key %(key)s") % words
    if row.due_at:
        yield _("due at %(time)s") % {"time": f"{localised(row.due_at):%Y-%m-%d %H:%M:%S}"}


def _attempt(attempt: Attempt) -> Moment:
    words = {"attempt": attempt.attempt, "round": attempt.round}
    if attempt.round:
        title = _("Attempt %(attempt)d of round %(round)d failed") % words
    else:
        title = _("Attempt %(attempt)d failed") % words
    return Moment(
        at=attempt.started_at,
        title=title,
        details=tuple(_circumstances(attempt)),
        error=short(f"{attempt.error_type}: {attempt.error}"),
        tone="bad",
        order=2,
    )


def _circumstances(attempt: Attempt) -> Iterator[str]:
    milliseconds = round(attempt.duration * 1000)
    yield _("on %(host)s") % {"host": attempt.host}
    yield ngettext("%d ms", "%d ms", milliseconds) % milliseconds
    if attempt.tier:
        yield _("then in the tier %(tier)s") % {"tier": attempt.tier}


def _parkings(letter: DeadLetter, attempts: list[Attempt]) -> Iterator[Moment]:
    yield _parked(letter, letter.created_at)
    last = [each for each in attempts if each.round and not each.tier]
    for each in last:
        yield _parked(letter, each.started_at + timedelta(seconds=each.duration))
    # What reached no subscription has no attempts, and is known by its row alone.
    if not last and letter.parked_at - letter.created_at > _SAME:
        yield _parked(letter, letter.parked_at)


def _parked(letter: DeadLetter, at: datetime) -> Moment:
    details = (letter.get_kind_display(),) if abs(at - letter.parked_at) < _SAME else ()
    return Moment(at=at, title=_("Parked as a dead letter"), details=details, tone="bad", order=3)


def _end(
    request: HttpRequest, letter: DeadLetter, planned: list[PlannedLetter]
) -> Iterator[Moment]:
    words = {"by": visible(letter.closed_by), "note": note_of(letter)}
    match letter.state:
        case DeadLetter.State.HEALED if letter.closed_at:
            yield Moment(at=letter.closed_at, title=_("Healed"), tone="good", order=4)
        case DeadLetter.State.REPLACED if letter.closed_at:
            found = replacement_of(letter)
            title = _("Replaced by the edited message: %(outcome)s") % {"outcome": found.words}
            links = ((letter.replaced_by, found.url(request)),)
            yield Moment(at=letter.closed_at, title=title, links=links, tone=found.tone, order=4)
        # Without its plan, which may have been pruned.
        case DeadLetter.State.DISCARDED if letter.closed_at and not _is_told(letter, planned):
            title = _("Discarded by %(by)s") % words
            yield Moment(at=letter.closed_at, title=title, details=(words["note"],), order=4)
        case DeadLetter.State.UNKNOWN if letter.redriven_at:
            title = _("Unanswered")
            yield Moment(
                at=letter.redriven_at, title=title, details=(words["note"],), tone="bad", order=4
            )


def _is_told(letter: DeadLetter, planned: list[PlannedLetter]) -> bool:
    """Whether a plan tells of the discard that closed *letter*."""
    closed_at = letter.closed_at or letter.parked_at
    discards = (each for each in planned if each.state == PlannedLetter.State.DISCARDED)
    return any(each.settled_at and each.settled_at > closed_at - _SAME for each in discards)
