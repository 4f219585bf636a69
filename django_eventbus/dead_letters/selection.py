"""A selection of dead letters by name=value terms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode

from django.utils.translation import gettext

from django_eventbus.dead_letters.filter_values import json_values, nearest, time_or_age
from django_eventbus.dead_letters.filters import FILTER_NAMES, FILTERS, PATH_FILTERS
from django_eventbus.dead_letters.redaction import HIDDEN, is_hidden
from django_eventbus.dead_letters.snapshot import Snapshot
from django_eventbus.events.text import is_storable
from django_eventbus.exceptions import BadSelection


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One name=value: the name, the text of the value, and the parsed value."""

    name: str
    text: str
    value: Any
    #: The path in the payload or the headers.
    path: tuple[str, ...] = ()

    @property
    def written_name(self) -> str:
        return ".".join((self.name, *map(self._step, self.path)))

    def is_hidden(self, rules: Iterable[str]) -> bool:
        """Whether *rules* hide the value that it is compared with."""
        return bool(self.path) and is_hidden(self.path, PATH_FILTERS[self.name].column, rules)

    def _step(self, name: str) -> str:
        return f'"{name}"' if self.name == "payload" and "." in name else name


@dataclass(frozen=True, slots=True)
class Selection:
    """A filter of dead letters. Without terms, it selects all."""

    terms: tuple[Term, ...] = ()

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]], *, now: datetime | None = None) -> Selection:
        """Parse (name, value) pairs, or raise BadSelection, which names the wrong one."""
        moment = now or datetime.now(UTC)
        return cls(tuple(_term(name, text, moment) for name, text in pairs))

    @classmethod
    def from_query(cls, query: str, *, now: datetime | None = None) -> Selection:
        """Parse the result of query(), or the filters in a URL."""
        return cls.of(parse_qsl(query, keep_blank_values=True), now=now)

    @classmethod
    def from_words(cls, words: Iterable[str], *, now: datetime | None = None) -> Selection:
        """Parse the filters of a command line, each name=value."""
        pairs = [word.partition("=") for word in words]
        for name, equals, _ in pairs:
            if not equals:
                raise BadSelection(
                    gettext("%(name)r is not a filter: write name=value.") % {"name": name[:100]}
                )
        return cls.of(((name, text) for name, _, text in pairs), now=now)

    @classmethod
    def of_ids(cls, ids: Iterable[int]) -> Selection:
        return cls.of([("id", ",".join(map(str, ids)))])

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return [(term.written_name, term.text) for term in self.terms]

    @property
    def snapshot(self) -> Snapshot | None:
        return next((term.value for term in self.terms if term.name == "as_of"), None)

    @property
    def is_frozen(self) -> bool:
        return self.snapshot is not None

    def query(self) -> str:
        """Return the selection as the query string of a URL, which from_query() parses."""
        return urlencode(self.pairs)

    def words(self) -> str:
        """Return the selection as text for people."""
        return " ".join(f"{name}={text}" for name, text in self.pairs) or gettext("all")

    def with_terms(self, **texts: str) -> Selection:
        """Return the selection with these terms, which replace terms of the same names."""
        kept = tuple(term for term in self.terms if term.written_name not in texts)
        return Selection((*kept, *Selection.of(texts.items()).terms))

    def narrowed(self, name: str, texts: Iterable[str]) -> Selection:
        """Return the selection with *name* limited to *texts*, or set to them if none is in it."""
        others = tuple(term for term in self.terms if term.written_name != name)
        asked = {term.text for term in self.terms if term.written_name == name}
        values = [str(text) for text in texts]
        common = [text for text in values if text in asked] or values
        return Selection((*others, *Selection.of([(name, text) for text in common]).terms))

    def without(self, *names: str) -> Selection:
        """Return the selection without the terms *names*."""
        return Selection(tuple(term for term in self.terms if term.name not in names))

    def redacted(self, rules: Iterable[str]) -> Selection:
        """Return the selection to be shown or recorded, without the values that *rules* hide."""
        hidden = [term for term in self.terms if term.is_hidden(rules)]
        return Selection(
            tuple(
                replace(term, text=HIDDEN, value=[HIDDEN]) if term in hidden else term
                for term in self.terms
            )
        )

    @property
    def is_redacted(self) -> bool:
        """Whether a value is missing, so that the selection finds other dead letters."""
        return any(term.path and term.text == HIDDEN for term in self.terms)

    def without_redacted(self) -> Selection:
        """Return the selection without the terms whose values are missing."""
        return Selection(tuple(t for t in self.terms if not (t.path and t.text == HIDDEN)))

    def frozen(self, snapshot: Snapshot) -> Selection:
        return self.with_terms(as_of=str(snapshot))


def _term(name: str, text: str, now: datetime) -> Term:
    if not is_storable(name + text):
        raise BadSelection(
            gettext("%(name)r contains a NUL character or a lone surrogate.") % {"name": name[:100]}
        )
    head, _, path = name.partition(".")
    try:
        if head in PATH_FILTERS:
            steps = PATH_FILTERS[head].read_path(path)
            return Term(name=head, path=steps, text=text, value=json_values(text))
        if name not in FILTERS:
            raise ValueError(_unknown_filter(name))
        if FILTERS[name].takes_age:
            # Store an age as a time: the selection must mean the same when it is parsed again.
            text = time_or_age(text, now).isoformat()
        return Term(name=name, text=text, value=FILTERS[name].read(text))
    except ValueError as error:
        raise BadSelection(f"{name}={text[:100]}: {error}.") from None


def _unknown_filter(name: str) -> str:
    # Compare "headers.tenant" by its first part: as a whole, it is not similar to any name.
    if guess := nearest(name, FILTERS) or nearest(name.partition(".")[0], PATH_FILTERS):
        return gettext("this filter does not exist; did you mean %r") % guess
    return gettext("this filter does not exist; the filters are %s") % ", ".join(FILTER_NAMES)
