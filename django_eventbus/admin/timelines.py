"""The timeline of a dead letter: from its publication to what came of its re-drives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_eventbus.admin.excerpts import short, visible
from django_eventbus.admin.outcomes import note_of
from django_eventbus.admin.read_only import localised
from django_eventbus.admin.related import attempts_of
from django_eventbus.messages import (
    EDITED_FROM,
    NOT_BEFORE,
    REDRIVEN_BY,
    REDRIVEN_COUNT,
    RETRY_COUNT,
)
from django_eventbus.models import Attempt, DeadLetter, OutboxEvent

ROWS_LIMIT = 100
#: What a database rounds away, and what passes between two writes of one transaction.
_SAME = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Something that happened to the message."""

    at: datetime
    title: str
    details: tuple[str, ...] = ()
    error: str = ""
    #: "good" or "bad", told by a sign and a colour.
    tone: str = ""
    #: Among moments of the same time: what comes first.
    order: int = field(default=0)


def timeline_of(letter: DeadLetter) -> list[Moment]:
    """Return what happened to the message of *letter*, as far as it is recorded, in order."""
    attempts = attempts_of(letter)
    moments = [
        *_sending(letter),
        *(_attempt(each) for each in attempts),
        *_parkings(letter, attempts),
        *_end(letter),
    ]
    return sorted(moments, key=lambda moment: (moment.at, moment.order))


def _sending(letter: DeadLetter) -> Iterator[Moment]:
    ids = [each for each in (letter.message_id, letter.replaced_by) if each]
    rows = OutboxEvent.objects.using(letter._state.db).filter(message_id__in=ids)
    mine = rows.filter(queue__in=("", letter.queue), subscription__in=("", letter.subscription))
    found = list(mine.defer("body").order_by("id")[:ROWS_LIMIT])
    if not any(not row.is_addressed for row in found) and letter.sent_at:
        source = visible(letter.source) or _("a stranger")
        yield Moment(at=letter.sent_at, title=_("Published by %(source)s") % {"source": source})
    for row in found:
        yield from _sent(row)


def _sent(row: OutboxEvent) -> Iterator[Moment]:
    if title := _title(row):
        yield Moment(at=row.created_at, title=title, details=tuple(_destination(row)))
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
    if headers.get(RETRY_COUNT) or headers.get(NOT_BEFORE) or not headers.get(REDRIVEN_COUNT):
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
    return Moment(at=at, title=_("Parked"), details=details, tone="bad", order=3)


def _end(letter: DeadLetter) -> Iterator[Moment]:
    words = {"by": visible(letter.closed_by), "note": note_of(letter)}
    match letter.state:
        case DeadLetter.State.HEALED if letter.closed_at:
            yield Moment(at=letter.closed_at, title=_("Healed"), tone="good", order=4)
        case DeadLetter.State.REPLACED if letter.closed_at:
            title = _("Replaced by the edited message")
            details = (letter.replaced_by,)
            yield Moment(at=letter.closed_at, title=title, details=details, tone="good", order=4)
        case DeadLetter.State.DISCARDED if letter.closed_at:
            title = _("Discarded by %(by)s") % words
            yield Moment(at=letter.closed_at, title=title, details=(words["note"],), order=4)
        case DeadLetter.State.UNKNOWN if letter.redriven_at:
            title = _("Unanswered")
            yield Moment(
                at=letter.redriven_at, title=title, details=(words["note"],), tone="bad", order=4
            )
