"""How far a plan is: a bar, counts, and the latest outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import DEFAULT_DB_ALIAS
from django.utils.text import capfirst

from django_eventbus.admin.excerpts import short, visible
from django_eventbus.admin.filters import in_words
from django_eventbus.models import DeadLetter, Plan, PlannedLetter
from django_eventbus.plans import progress
from django_eventbus.selections import Selection
from django_eventbus.sentences import translated

#: The width of the bar, in the units of its drawing.
WIDTH = 1000
OUTCOMES_LIMIT = 50
_ORDER = (
    "healed", "discarded", "restored", "failed", "unknown", "skipped", "sent", "pending",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One state's part of the bar."""

    state: str
    name: str
    count: int
    x: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A plan's counts, and the bar that they make."""

    parts: list[Part]
    total: int
    settled: int
    words: str

    @property
    def percent(self) -> int:
        return self.settled * 100 // self.total if self.total else 100


def progress_of(plan: Plan) -> Progress:
    """Count what has become of the plan's dead letters."""
    counts = progress(plan)
    return Progress(
        parts=_parts(counts),
        total=sum(counts.values()),
        settled=sum(
            number for state, number in counts.items() if state not in PlannedLetter.UNSETTLED
        ),
        words=in_words(Selection.from_query(plan.filter), plan._state.db or DEFAULT_DB_ALIAS),
    )


def _parts(counts: dict[str, int]) -> list[Part]:
    names = dict(PlannedLetter.State.choices)
    total, x, parts = max(1, sum(counts.values())), 0.0, []
    for state in filter(counts.__contains__, _ORDER):
        width = round(counts[state] / total * WIDTH, 2)
        part = Part(state=state, name=str(names[state]), count=counts[state], x=x, width=width)
        parts.append(part)
        x = round(x + width, 2)
    return parts


def state_in_words(state: str, note: str) -> tuple[str, str]:
    """Return what a plan's *state* is called, and why it is so; "Paused by ada." says both."""
    name, why = capfirst(str(Plan.State(state).label)), translated(note)
    if why.startswith(name):
        return why, ""
    return (f"{name}:" if why else name), why


def latest_outcomes(plan: Plan) -> list[dict[str, Any]]:
    """Return the latest outcomes of every kind."""
    rows = PlannedLetter.objects.using(plan._state.db).filter(plan=plan)
    settled = rows.filter(settled_at__isnull=False).order_by("-settled_at")
    return _outcomes(plan, list(settled[:OUTCOMES_LIMIT]))


def outcomes_of(plan: Plan, state: str, after: int) -> tuple[list[dict[str, Any]], int | None]:
    """Return those of one *state* from a place on, and the place of the next page if there is one."""
    rows = PlannedLetter.objects.using(plan._state.db).filter(plan=plan, state=state)
    found = list(rows.filter(pk__gt=after).order_by("pk")[: OUTCOMES_LIMIT + 1])
    shown = found[:OUTCOMES_LIMIT]
    return _outcomes(plan, shown), shown[-1].pk if len(found) > OUTCOMES_LIMIT else None


def _outcomes(plan: Plan, rows: list[PlannedLetter]) -> list[dict[str, Any]]:
    letters, words = _letters(plan, [row.dead_letter_id for row in rows]), _errors(plan, rows)
    return [_outcome(row, letters.get(row.dead_letter_id), words.get(row.pk, "")) for row in rows]


def _errors(plan: Plan, rows: list[PlannedLetter]) -> dict[int, str]:
    """Return the words of the errors with which *rows* failed, as far as they are still known."""
    # Not kept with the outcome: rows that say the same are written by one statement.
    failed = [row for row in rows if row.state == PlannedLetter.State.FAILED]
    letters = DeadLetter.objects.using(plan._state.db).only("id", "message_id", "error", "round")
    same = letters.in_bulk([row.dead_letter_id for row in failed if not row.sent_as])
    edited = letters.filter(message_id__in=[row.sent_as for row in failed if row.sent_as])
    by_id = {letter.message_id: letter for letter in edited}
    words = {}
    for row in failed:
        letter = by_id.get(row.sent_as) if row.sent_as else same.get(row.dead_letter_id)
        if letter and (row.sent_as or letter.round == row.round + 1):
            words[row.pk] = letter.error
    return words


def _letters(plan: Plan, ids: list[int]) -> dict[int, DeadLetter]:
    letters = DeadLetter.objects.using(plan._state.db).filter(pk__in=ids)
    return letters.only("id", "type", "message_id", "subscription", "key").in_bulk()


def _outcome(row: PlannedLetter, letter: DeadLetter | None, words: str) -> dict[str, Any]:
    return {
        "letter": letter,
        "letter_id": row.dead_letter_id,
        "state": row.state,
        "name": row.get_state_display(),
        "why": short(f"{row.why}: {words}") if words else translated(visible(row.why)),
        "at": row.settled_at or row.sent_at,
    }
