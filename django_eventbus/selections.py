"""
Selections: one way to say which dead letters are meant, in a URL, a command, a plan, the audit.

A selection is a list of name=value. Values of one name are alternatives; different names must
all hold. Pure: reading what is written, and writing what was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode

from django.utils.translation import gettext

from django_eventbus.exceptions import BadSelection
from django_eventbus.filter_values import (
    absolute,
    header_path,
    ids,
    json_values,
    nearest,
    number,
    one_of,
    payload_path,
    plain,
    plan_and_outcome,
    some_text,
    time_or_age,
    whole,
    yes_or_no,
)
from django_eventbus.messages import is_storable
from django_eventbus.models import DeadLetter, PlannedLetter


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """What had been seen: nothing that was parked later, or has a higher id."""

    at: datetime
    highest: int

    @classmethod
    def read(cls, text: str) -> Cut:
        """Read what str() wrote, or raise ValueError."""
        at, _, highest = text.rpartition("~")
        return cls(at=absolute(at), highest=number(highest, digits=18))

    def __str__(self) -> str:
        return f"{self.at.isoformat()}~{self.highest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One name=value: what it is about, how it is written, and what that means."""

    name: str
    text: str
    value: Any
    #: Within the payload or the headers.
    path: tuple[str, ...] = ()

    @property
    def written_name(self) -> str:
        return ".".join((self.name, *map(self._step, self.path)))

    def _step(self, name: str) -> str:
        return f'"{name}"' if self.name == "payload" and "." in name else name


@dataclass(frozen=True, slots=True)
class Selection:
    """Which dead letters are meant. Without a term: all."""

    terms: tuple[Term, ...] = ()

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]], *, now: datetime | None = None) -> Selection:
        """Read (name, value) pairs, or raise BadSelection naming the one that is wrong."""
        moment = now or datetime.now(UTC)
        return cls(tuple(_term(name, text, moment) for name, text in pairs))

    @classmethod
    def from_query(cls, query: str, *, now: datetime | None = None) -> Selection:
        """Read what query() wrote, or the filters of a URL."""
        return cls.of(parse_qsl(query, keep_blank_values=True), now=now)

    @classmethod
    def from_words(cls, words: Iterable[str], *, now: datetime | None = None) -> Selection:
        """Read the filters of a command line, each name=value."""
        pairs = [word.partition("=") for word in words]
        for name, equals, _ in pairs:
            if not equals:
                raise BadSelection(
                    gettext("%(name)r is no filter: write name=value.") % {"name": name[:100]}
                )
        return cls.of(((name, text) for name, _, text in pairs), now=now)

    @classmethod
    def of_ids(cls, ids: Iterable[int]) -> Selection:
        return cls.of([("id", ",".join(map(str, ids)))])

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return [(term.written_name, term.text) for term in self.terms]

    @property
    def cut(self) -> Cut | None:
        return next((term.value for term in self.terms if term.name == "as_of"), None)

    @property
    def is_frozen(self) -> bool:
        return self.cut is not None

    def query(self) -> str:
        """Write it as the query string of a URL, from which it can be read again."""
        return urlencode(self.pairs)

    def words(self) -> str:
        """Write it as a person reads it."""
        return " ".join(f"{name}={text}" for name, text in self.pairs) or gettext("all")

    def with_terms(self, **texts: str) -> Selection:
        """Return it with these terms in place of those of the same names."""
        kept = tuple(term for term in self.terms if term.written_name not in texts)
        return Selection((*kept, *Selection.of(texts.items()).terms))

    def narrowed(self, name: str, texts: Iterable[str]) -> Selection:
        """Return it with only those values of *name* that are among *texts*; without one: *texts*."""
        others = tuple(term for term in self.terms if term.written_name != name)
        asked = {term.text for term in self.terms if term.written_name == name}
        values = [str(text) for text in texts]
        common = [text for text in values if text in asked] or values
        return Selection((*others, *Selection.of([(name, text) for text in common]).terms))

    def without(self, *names: str) -> Selection:
        """Return it without the terms called *names*."""
        return Selection(tuple(term for term in self.terms if term.name not in names))

    def frozen(self, cut: Cut) -> Selection:
        return self.with_terms(as_of=str(cut))


def _term(name: str, text: str, now: datetime) -> Term:
    if not is_storable(name + text):
        raise BadSelection(
            gettext("%(name)r holds a NUL or a lone surrogate.") % {"name": name[:100]}
        )
    head, _, path = name.partition(".")
    try:
        if head in _BY_PATH:
            return Term(name=head, path=_BY_PATH[head](path), text=text, value=json_values(text))
        value, written = _read(name, text, now)
    except ValueError as error:
        raise BadSelection(f"{name}={text[:100]}: {error}.") from None
    return Term(name=name, text=written, value=value)


def _read(name: str, text: str, now: datetime) -> tuple[Any, str]:
    if name in ("parked_after", "parked_before"):
        time = time_or_age(text, now)
        return time, time.isoformat()
    if name not in _READERS:
        # "headers.tenant" is nearer to "header" than its whole is to anything.
        guess = nearest(name, _READERS) or nearest(name.partition(".")[0], _BY_PATH)
        if guess:
            raise ValueError(gettext("there is no such filter; did you mean %r") % guess)
        raise ValueError(gettext("there is no such filter; there are %s") % ", ".join(FILTERS))
    return _READERS[name](text), text


def _cut(text: str) -> Cut:
    try:
        return Cut.read(text)
    except ValueError:
        raise ValueError(gettext("this is not a cut; leave it out")) from None


_BY_PATH: Mapping[str, Callable[[str], tuple[str, ...]]] = {
    "header": header_path,
    "payload": payload_path,
}
_READERS: Mapping[str, Callable[[str], Any]] = {
    "type": plain,
    "queue": plain,
    "subscription": plain,
    "kind": one_of(DeadLetter.Kind.values),
    "state": one_of(DeadLetter.State.values),
    "group": plain,
    "error_type": plain,
    "error": some_text,
    "source": plain,
    "message_id": plain,
    "parked_after": plain,
    "parked_before": plain,
    "attempts_min": whole,
    "attempts_max": whole,
    "edited": yes_or_no,
    "redriven": yes_or_no,
    "ignored": yes_or_no,
    "plan": plan_and_outcome(PlannedLetter.State.values),
    "id": ids,
    "as_of": _cut,
}
#: What a person may write.
FILTERS = (*(name for name in _READERS if name != "as_of"), "header.NAME", "payload.PATH")
