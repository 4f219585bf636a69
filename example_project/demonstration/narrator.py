"""Print what happens, from the tables of the event bus."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django_eventbus.models import Attempt, DeadLetter, InboxRecord, OutboxEvent

COLOURS = {
    "handled": "32",
    "healed": "1;32",
    "retrying": "33",
    "scheduled": "36",
    "re-driven": "36",
    "parked": "31",
    "given up": "31",
    "published": "2",
}

#: The number of latest messages that are read.
WATCHED = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that happened to a message. Printed once; `number` distinguishes similar facts."""

    message_id: str
    subject: str
    where: str
    state: str
    number: int = 0
    text: str = ""

    @property
    def identity(self) -> tuple[str, str, str, int]:
        return self.message_id, self.where, self.state, self.number


class Narrator:
    """Prints each fact once, with the time, in colour on a terminal."""

    def __init__(self) -> None:
        self.has_colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        self._told: set[tuple[str, str, str, int]] = set()

    def heading(self, text: str, *explanation: str) -> None:
        print(f"\n{self.painted(text, '1')}")
        for line in explanation:
            print(f"  {line}")
        sys.stdout.flush()

    def line(self, text: str) -> None:
        print(f"{datetime.now(UTC):%H:%M:%S}  {text}", flush=True)

    def painted(self, text: str, colour: str) -> str:
        return f"\033[{colour}m{text}\033[0m" if self.has_colour else text

    def painted_state(self, text: str, state: str) -> str:
        return self.painted(text, COLOURS.get(state, "0"))

    def tell_news(self) -> None:
        """Print what has happened since the last call."""
        for fact in facts():
            if fact.identity not in self._told:
                self._told.add(fact.identity)
                self._tell(fact)

    def _tell(self, fact: Fact) -> None:
        word = self.painted_state(f"{fact.state:<9}", fact.state)
        self.line(f"{fact.subject:<21}  {fact.where:<13}  {word}  {fact.text}".rstrip())


def facts() -> Iterator[Fact]:
    """Yield all facts about the latest messages, the oldest first."""
    published = OutboxEvent.objects.filter(queue="")
    ids = published.order_by("-pk").values_list("message_id", flat=True)[:WATCHED]
    watched = {"message_id__in": list(ids)}
    # Read the tables in reverse order of writing, so that no fact is seen without earlier ones.
    records = list(InboxRecord.objects.filter(**watched, state__in=("handled", "skipped")))
    letters = list(DeadLetter.objects.filter(**watched))
    failures = list(Attempt.objects.filter(**watched).exclude(tier="").order_by("pk"))
    for row in published.filter(**watched).order_by("pk"):
        yield from History(row, records, letters, failures).facts()


class History:
    """The rows about one message."""

    def __init__(
        self,
        row: OutboxEvent,
        records: Sequence[InboxRecord],
        letters: Sequence[DeadLetter],
        failures: Sequence[Attempt],
    ) -> None:
        self.row = row
        self.records = [each for each in records if each.message_id == row.message_id]
        self.letters = [each for each in letters if each.message_id == row.message_id]
        self.failures = [each for each in failures if each.message_id == row.message_id]

    def facts(self) -> Iterator[Fact]:
        yield from self._sending()
        for attempt in self.failures:
            yield self._fact(app_of(attempt), "retrying", attempt.pk, retry(attempt))
        for letter in self.letters:
            yield from self._facts_of_letter(letter)
        parked = {letter.subscription for letter in self.letters}
        for record in self.records:
            if record.subscription not in parked:
                text = f"on attempt {record.attempt}"
                yield self._fact(app_of(record), record.state, text=text)

    def _sending(self) -> Iterator[Fact]:
        if self.row.due_at:
            yield self._fact("outbox", "scheduled", text=f"for {self.row.due_at:%H:%M:%S}")
        # A message that has arrived was published, even if the relay has not marked it yet.
        if self.row.published_at or self.records or self.failures or self.letters:
            yield self._fact("relay", "published")

    def _facts_of_letter(self, letter: DeadLetter) -> Iterator[Fact]:
        app, number = app_of(letter), letter.round
        if letter.redriven_at:
            text = f"to {letter.queue} only, by {letter.redriven_by}, round {letter.round}"
            yield self._fact(app, "re-driven", number, text)
        if letter.state == DeadLetter.State.OPEN:
            state = "given up" if letter.kind == DeadLetter.Kind.GIVEN_UP else "parked"
            text = f"on attempt {letter.attempts}: {letter.error_type}: {letter.error}"
            yield self._fact(app, state, number, text)
        if letter.is_closed:
            yield self._fact(app, letter.state, number, f"in round {letter.round}")

    def _fact(self, where: str, state: str, number: int = 0, text: str = "") -> Fact:
        return Fact(
            message_id=self.row.message_id,
            subject=f"{self.row.type} {self.row.key}",
            where=where,
            state=state,
            number=number,
            text=text,
        )


def app_of(row: Attempt | DeadLetter | InboxRecord) -> str:
    return row.subscription.partition(".")[0]


def retry(attempt: Attempt) -> str:
    error = f"{attempt.error_type}: {attempt.error}"
    return f"attempt {attempt.attempt} failed, again in {attempt.tier}: {error}"
