"""Text and JSON that every database can store, and sentences that can be translated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext

#: Levels of nesting. Far below Python's limit, which depends on who is calling.
DEPTH_LIMIT = 100

#: Bits of an int; Python refuses to write more than 4,300 digits.
_LONGEST_INT = 14_000


class Sentence(str):
    """A sentence in English, for logs and rows, that a page can show in the reader's language."""

    template: str
    values: dict[str, Any]

    def __new__(cls, template: str, **values: Any) -> Sentence:
        """Fill the placeholders of *template*, which gettext_noop() has marked."""
        sentence = super().__new__(cls, template % values)
        sentence.template, sentence.values = template, values
        return sentence

    @property
    def translated(self) -> str:
        return gettext(self.template) % self.values


def gettext_noop(template: str) -> str:
    """Mark *template* to be translated."""
    # Not Django's own, which reads the settings: an event class can be imported without any.
    return template


def translated(text: str) -> str:
    """Return a Sentence in the reader's language, and any other text unchanged."""
    return text.translated if isinstance(text, Sentence) else text


def is_storable(text: str) -> bool:
    """Whether a PostgreSQL text column can hold *text*."""
    return "\x00" not in text and is_unicode(text)


def storable(text: str, limit: int) -> str:
    """Return *text* such that every database can hold it, cut to *limit* characters."""
    return text[:limit].encode(errors="replace").decode().replace("\x00", "\ufffd")


def storable_json(value: Any, depth: int = 0) -> Any:
    """Return *value* as JSON that PostgreSQL's jsonb takes: replaced where it would refuse."""
    if depth > DEPTH_LIMIT:
        return "…"
    if isinstance(value, Mapping):
        pairs = ((storable_json(str(key)), each) for key, each in value.items())
        return {key: storable_json(each, depth + 1) for key, each in pairs}
    if isinstance(value, list | tuple):
        return [storable_json(each, depth + 1) for each in value]
    return _storable_scalar(value)


def _storable_scalar(value: Any) -> Any:
    match value:
        case str():
            return storable(value, len(value))
        case bytes():
            return storable(value.decode(errors="replace"), len(value))
        case int() if value.bit_length() > _LONGEST_INT:
            return storable(hex(value), 1000)
        case bool() | int() | None:
            return value
        case float():
            return value if math.isfinite(value) else str(value)
    return storable(str(value), 1000)


def is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)
