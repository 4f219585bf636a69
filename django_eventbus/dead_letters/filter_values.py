"""Parse the values of filters, and explain why a value is not valid."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any

from django.utils import timezone
from django.utils.formats import number_format
from django.utils.translation import gettext

from django_eventbus.durations import is_too_far, seconds
from django_eventbus.events.text import DEPTH_LIMIT, is_storable

_MAX_IDS = 10_000
#: The maximum number of list indexes in a path: each doubles the conditions on SQLite.
_MAX_LIST_INDEXES = 4
#: Digits of a list index. SQLite reads a larger number as a small one.
_MAX_INDEX_DIGITS = 9
#: A step of a path in the payload: a name, or a name in quotes if it contains dots.
_STEP = re.compile(r'"([^"]+)"|([^."][^.]*)')


def nearest(text: str, words: Collection[str]) -> str:
    return next(iter(get_close_matches(text, words, 1)), "")


def json_values(text: str) -> list[Any]:
    """Return the JSON values that *text* may mean: 42 a number or a text, "42" only a text."""
    if not text:
        raise ValueError(gettext('write a value; "" is the empty text'))
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(_not_single()) from None
    except ValueError:
        return [text]
    if isinstance(value, dict | list):
        raise ValueError(_not_single())
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(gettext("this is not a number in JSON; write text in quotes"))
    if not isinstance(value, str):
        return [value, text]
    if not is_storable(value):
        raise ValueError(gettext("the value contains a NUL character or a lone surrogate"))
    return [value]


def _not_single() -> str:
    return gettext("write a single value, not an object or a list")


def may_be_list_index(step: str) -> bool:
    """Whether a step of a path may be a list index. It may also be a key."""
    return step.isascii() and step.isdigit() and len(step) <= _MAX_INDEX_DIGITS


def payload_path(path: str) -> tuple[str, ...]:
    steps, at = [], 0
    while step := _STEP.match(path, at):
        steps.append(step[1] or step[2])
        at = step.end() + 1
        if path[step.end() : at] != ".":
            break
    is_bounded = (
        len(steps) <= DEPTH_LIMIT and sum(map(may_be_list_index, steps)) <= _MAX_LIST_INDEXES
    )
    if at != len(path) + 1 or not is_bounded:
        raise ValueError(gettext("write a path in the payload, for example payload.order.id=42"))
    return tuple(steps)


def header_path(path: str) -> tuple[str, ...]:
    if not path:
        raise ValueError(gettext("write the name of a header, for example header.tenant=acme"))
    return (path,)


def plain(text: str) -> str:
    return text


def nonempty_text(text: str) -> str:
    if not text:
        raise ValueError(gettext("write the text to search for"))
    return text


def one_of(words: Collection[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text in words:
            return text
        if guess := nearest(text, words):
            raise ValueError(gettext("this value does not exist; did you mean %r") % guess)
        raise ValueError(gettext("this value does not exist; the values are %s") % ", ".join(words))

    return read


def whole(text: str) -> int:
    return number(text, digits=9)


def number(text: str, *, digits: int) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > digits:
        raise ValueError(gettext("write a whole number"))
    return int(text)


def yes_or_no(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ValueError(gettext("write yes or no"))
    return text == "yes"


def ids(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
        raise ValueError(gettext("write ids separated by commas, for example id=1,2,3"))
    if len(parts) > _MAX_IDS:
        raise ValueError(
            gettext("more than %(limit)s ids were given; use another filter")
            % {"limit": number_format(_MAX_IDS, force_grouping=True)}
        )
    return tuple(map(int, parts))


def plan_and_outcome(outcomes: Collection[str]) -> Callable[[str], tuple[int, str]]:
    def read(text: str) -> tuple[int, str]:
        plan, _, outcome = text.partition(":")
        return number(plan, digits=18), one_of(outcomes)(outcome) if outcome else ""

    return read


def time_or_age(text: str, now: datetime) -> datetime:
    try:
        return now - timedelta(seconds=seconds(text))
    except ValueError:
        return absolute(text)


def absolute(text: str) -> datetime:
    """Parse a time, by default in the current time zone, and return it in UTC."""
    time = _iso(text.strip())
    if is_too_far(time):
        raise ValueError(gettext("this time is out of range"))
    return (time if time.tzinfo else timezone.make_aware(time)).astimezone(UTC)


def _iso(text: str) -> datetime:
    # In a URL that was written by hand, the "+" of an offset is decoded as a space.
    for written in (text, "+".join(text.rsplit(" ", 1))):
        try:
            return datetime.fromisoformat(written)
        except ValueError:
            continue
    raise ValueError(gettext("write a time like 2026-01-31T12:00, or a duration like 24h"))
