"""
Selections: one way to say which dead letters are meant, in a URL, a command, a plan, the audit.

A selection is a list of name=value. Values of one name are alternatives; different names must
all hold. Pure: reading what is written, and writing what was read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any
from urllib.parse import parse_qsl, urlencode

from django.utils.translation import gettext

from django_eventbus.durations import seconds
from django_eventbus.exceptions import BadSelection
from django_eventbus.messages import is_storable

_MOST_IDS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """What had been seen: nothing that was parked later, or has a higher id."""

    at: datetime
    highest: int

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
        return ".".join((self.name, *self.path))


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

    def frozen(self, cut: Cut) -> Selection:
        return self.with_terms(as_of=str(cut))


def is_filter(name: str) -> bool:
    """Whether *name* is one that a selection knows."""
    return name in _READERS or name.partition(".")[0] in _BY_PATH


def _term(name: str, text: str, now: datetime) -> Term:
    if not is_storable(text):
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
        time = _time(text, now)
        return time, time.isoformat()
    if name not in _READERS:
        guess = get_close_matches(name, _READERS, 1)
        if guess:
            raise ValueError(gettext("there is no such filter; did you mean %r") % guess[0])
        raise ValueError(gettext("there is no such filter; there are %s") % ", ".join(FILTERS))
    return _READERS[name](text), text


def json_values(text: str) -> list[Any]:
    """Return what *text* may stand for in JSON: 42 is the number or the text, "42" the text only."""
    try:
        value = json.loads(text)
    except ValueError:
        return [text]
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict | list):
        raise ValueError(gettext("write a single value, not an object or a list"))
    return [value, text]


def _payload_path(path: str) -> tuple[str, ...]:
    parts = tuple(path.split("."))
    if not all(parts):
        raise ValueError(gettext("write where in the payload, such as payload.order.id=42"))
    return parts


def _header_path(path: str) -> tuple[str, ...]:
    if not path:
        raise ValueError(gettext("write which header, such as header.tenant=acme"))
    return (path,)


def _text(text: str) -> str:
    return text


def _some_text(text: str) -> str:
    if not text:
        raise ValueError(gettext("write some words"))
    return text


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise ValueError(gettext("write a whole number"))
    return int(text)


def _yes_or_no(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ValueError(gettext("write yes or no"))
    return text == "yes"


def _ids(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
        raise ValueError(gettext("write ids with commas in between, such as id=1,2,3"))
    if len(parts) > _MOST_IDS:
        raise ValueError(
            gettext("these are more than %(most)s ids; filter by something else")
            % {"most": f"{_MOST_IDS:,}"}
        )
    return tuple(map(int, parts))


def _time(text: str, now: datetime) -> datetime:
    try:
        return now - timedelta(seconds=seconds(text))
    except ValueError:
        pass
    try:
        # A "+" of an offset is a space in a URL that somebody wrote by hand.
        time = datetime.fromisoformat(text.replace(" ", "+") if text.count(" ") == 1 else text)
    except ValueError:
        raise ValueError(
            gettext("write a time like 2026-01-31T12:00, or a duration like 24h")
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=now.tzinfo)


def _cut(text: str) -> Cut:
    at, _, highest = text.rpartition("~")
    if not highest.isdigit():
        raise ValueError(gettext("this is not a cut; leave it out"))
    return Cut(at=_time(at, datetime.now(UTC)), highest=int(highest))


_BY_PATH: Mapping[str, Callable[[str], tuple[str, ...]]] = {
    "header": _header_path,
    "payload": _payload_path,
}
_READERS: Mapping[str, Callable[[str], Any]] = {
    "type": _text,
    "queue": _text,
    "subscription": _text,
    "kind": _text,
    "state": _text,
    "group": _text,
    "error_type": _text,
    "error": _some_text,
    "source": _text,
    "message_id": _text,
    "parked_after": _text,
    "parked_before": _text,
    "attempts_min": _whole,
    "attempts_max": _whole,
    "edited": _yes_or_no,
    "redriven": _yes_or_no,
    "ignored": _yes_or_no,
    "id": _ids,
    "as_of": _cut,
}
#: What a person may write.
FILTERS = (*(name for name in _READERS if name != "as_of"), "header.NAME", "payload.PATH")
