"""The history of a dead letter as a timeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.db import DEFAULT_DB_ALIAS
from django.http import HttpRequest
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_eventbus.admin.dead_letters.state_text import note_of, replacement_of
from django_eventbus.admin.formatting import short, visible
from django_eventbus.admin.model_admin import localised
from django_eventbus.admin.pages import permitted_url
from django_eventbus.admin.permissions import may_see
from django_eventbus.admin.related import attempts_of
from django_eventbus.dead_letters.query import matching
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.events.message import (
    EDITED_FROM,
    NOT_BEFORE,
    REDRIVEN_BY,
    REDRIVEN_COUNT,
    RETRY_COUNT,
)
from django_eventbus.exceptions import BadSelection
from django_eventbus.models import Attempt, AuditEntry, DeadLetter, OutboxEvent, Plan, PlannedLetter

ROWS_LIMIT = 100
#: Audit entries with the same end of an ignore that are read.
IGNORES_LIMIT = 10
#: Times that differ by less are the same: databases round, and a transaction writes more than once.
_TOLERANCE = timedelta(seconds=1)
#: The titles of the changes by a plan, by the state of its row.
_CLOSED: dict[str, str | Promise] = {
    PlannedLetter.State.DISCARDED: gettext_lazy("Discarded by %(by)s"),
    PlannedLetter.State.RESTORED: gettext_lazy("Restored by %(by)s"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    """An event in the history of the message."""

    at: datetime
    title: str
    details: tuple[str, ...] = ()
    #: Texts, each with a URL; "" if the user may not see that page.
    links: tuple[tuple[str, str], ...] = ()
    error: str = ""
    #: "good" or "bad": shown by a sign and a colour.
    tone: str = ""
    #: The order of entries of the same time.
    order: int = field(default=0)


def timeline_of(request: HttpRequest, letter: DeadLetter) -> list[TimelineEntry]:
    """Return the recorded history of the message of *letter*, in order."""
    attempts, planned = attempts_of(letter), _planned(letter)
    entries = [
        *_sending(request, letter, planned),
        *(_attempt(each) for each in attempts),
        *_parkings(letter, attempts),
        *(_closed(request, each) for each in planned if each.state in _CLOSED),
        *_ignored(letter),
        *_end(request, letter, planned),
    ]
    return sorted(entries, key=lambda entry: (entry.at, entry.order))


def _planned(letter: DeadLetter) -> list[PlannedLetter]:
    rows = PlannedLetter.objects.using(letter._state.db).filter(dead_letter=letter)
    return list(rows.select_related("plan").order_by("-plan_id")[:ROWS_LIMIT])


def pending_plans_of(request: HttpRequest, letter: DeadLetter) -> list[tuple[str, str]]:
    """Return the names and URLs of the plans in which *letter* is still pending."""
    waiting = PlannedLetter.objects.using(letter._state.db).filter(
        dead_letter=letter, round=letter.round, state=PlannedLetter.State.PENDING
    )
    found = waiting.filter(plan__ended_at__isnull=True).select_related("plan").order_by("plan_id")
    return [link for each in found[:ROWS_LIMIT] for link in _links(request, each.plan)]


def _links(request: HttpRequest, plan: Plan) -> tuple[tuple[str, str], ...]:
    address = (
        permitted_url(request, "plan_change", plan.pk) if may_see(request.user, plan.queues) else ""
    )
    return ((_("Plan %(id)d") % {"id": plan.pk}, address),)


def _closed(request: HttpRequest, planned: PlannedLetter) -> TimelineEntry:
    plan = planned.plan
    title = str(_CLOSED[planned.state]) % {"by": visible(plan.created_by)}
    return TimelineEntry(
        at=planned.settled_at or plan.created_at,
        title=title,
        details=(visible(plan.reason),),
        links=_links(request, plan),
        order=4,
    )


def _ignored(letter: DeadLetter) -> Iterator[TimelineEntry]:
    """Yield who ignored it, if it is ignored: found in the audit by the end of the ignore."""
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
            yield TimelineEntry(at=entry.at, title=title, details=(visible(entry.why),), order=4)
            return


def _is_about(entry: AuditEntry, letter: DeadLetter, using: str) -> bool:
    try:
        # Without the terms that no longer match once the dead letter has changed.
        meant = (
            Selection.from_query(entry.filter)
            .without("state", "ignored", "as_of")
            .without_redacted()
        )
    except BadSelection:
        return False
    return matching(meant, using).filter(pk=letter.pk).exists()


def _sending(
    request: HttpRequest, letter: DeadLetter, planned: list[PlannedLetter]
) -> Iterator[TimelineEntry]:
    ids = [each for each in (letter.message_id, letter.replaced_by) if each]
    rows = OutboxEvent.objects.using(letter._state.db).filter(message_id__in=ids)
    mine = rows.filter(queue__in=("", letter.queue), subscription__in=("", letter.subscription))
    found = list(mine.defer("body").order_by("id")[:ROWS_LIMIT])
    if not any(not row.is_addressed for row in found) and letter.sent_at:
        source = visible(letter.source) or _("a stranger")
        yield TimelineEntry(
            at=letter.sent_at, title=_("Published by %(source)s") % {"source": source}
        )
    plans = {each.round + 1: each.plan for each in planned if each.sent_at}
    for row in found:
        plan = plans.get(_round_of(row))
        yield from _sent(row, _links(request, plan) if plan else ())


def _round_of(row: OutboxEvent) -> int:
    """Return the round that the row re-drives; 0 for the event itself and for a retry."""
    is_redrive = row.is_addressed and not _is_delayed(row)
    return row.message().round if is_redrive else 0


def _is_delayed(row: OutboxEvent) -> bool:
    headers = row.headers
    is_late = headers.get(RETRY_COUNT) or headers.get(NOT_BEFORE)
    return bool(is_late or not headers.get(REDRIVEN_COUNT))


def _sent(row: OutboxEvent, links: tuple[tuple[str, str], ...]) -> Iterator[TimelineEntry]:
    if title := _title(row):
        details = tuple(_destination(row))
        yield TimelineEntry(at=row.created_at, title=title, details=details, links=links)
    if row.published_at:
        yield TimelineEntry(
            at=row.published_at, title=_("Relayed and confirmed by the broker"), order=1
        )
    elif row.error:
        outcome = row.get_state_display()
        yield TimelineEntry(
            at=row.created_at, title=outcome.capitalize(), error=short(row.error), tone="bad"
        )


def _title(row: OutboxEvent) -> str:
    headers = row.headers
    if not row.is_addressed:
        return _("Published by %(source)s") % {"source": row.source}
    if _is_delayed(row):
        return _("Sent again with a delay")
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


def _attempt(attempt: Attempt) -> TimelineEntry:
    words = {"attempt": attempt.attempt, "round": attempt.round}
    if attempt.round:
        title = _("Attempt %(attempt)d of round %(round)d failed") % words
    else:
        title = _("Attempt %(attempt)d failed") % words
    return TimelineEntry(
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


def _parkings(letter: DeadLetter, attempts: list[Attempt]) -> Iterator[TimelineEntry]:
    yield _parked(letter, letter.created_at)
    last = [each for each in attempts if each.round and not each.tier]
    for each in last:
        yield _parked(letter, each.started_at + timedelta(seconds=each.duration))
    # A message that reached no subscription has no attempts: only its row has the time.
    if not last and letter.parked_at - letter.created_at > _TOLERANCE:
        yield _parked(letter, letter.parked_at)


def _parked(letter: DeadLetter, at: datetime) -> TimelineEntry:
    details = (letter.get_kind_display(),) if abs(at - letter.parked_at) < _TOLERANCE else ()
    return TimelineEntry(
        at=at, title=_("Parked as a dead letter"), details=details, tone="bad", order=3
    )


def _end(
    request: HttpRequest, letter: DeadLetter, planned: list[PlannedLetter]
) -> Iterator[TimelineEntry]:
    words = {"by": visible(letter.closed_by), "note": note_of(letter)}
    match letter.state:
        case DeadLetter.State.HEALED if letter.closed_at:
            yield TimelineEntry(at=letter.closed_at, title=_("Healed"), tone="good", order=4)
        case DeadLetter.State.REPLACED if letter.closed_at:
            found = replacement_of(letter)
            title = _("Replaced by the edited message: %(outcome)s") % {"outcome": found.words}
            links = ((letter.replaced_by, found.url(request)),)
            yield TimelineEntry(
                at=letter.closed_at, title=title, links=links, tone=found.tone, order=4
            )
        # From the row, since the plan may have been pruned.
        case DeadLetter.State.DISCARDED if letter.closed_at and not _has_discard_entry(
            letter, planned
        ):
            title = _("Discarded by %(by)s") % words
            yield TimelineEntry(at=letter.closed_at, title=title, details=(words["note"],), order=4)
        case DeadLetter.State.UNKNOWN if letter.redriven_at:
            title = _("Unanswered")
            yield TimelineEntry(
                at=letter.redriven_at, title=title, details=(words["note"],), tone="bad", order=4
            )


def _has_discard_entry(letter: DeadLetter, planned: list[PlannedLetter]) -> bool:
    """Whether the discard that closed *letter* is already an entry, from its plan."""
    closed_at = letter.closed_at or letter.parked_at
    discards = (each for each in planned if each.state == PlannedLetter.State.DISCARDED)
    return any(each.settled_at and each.settled_at > closed_at - _TOLERANCE for each in discards)
