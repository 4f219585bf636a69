"""Text and JSON that every database can store, and sentences that can be translated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext

#: Levels of nesting. Far below Python's recursion limit, which depends on the call stack.
DEPTH_LIMIT = 100

#: Bits of an int. Python does not convert an int of more than 4,300 digits to text.
_LONGEST_INT = 14_000


class Sentence(str):
    """An English sentence for logs and rows, which a page can translate for its reader."""

    template: str
    values: dict[str, Any]

    def __new__(cls, template: str, **values: Any) -> Sentence:
        """Fill in *template*, which must be marked with gettext_noop()."""
        sentence = super().__new__(cls, template % values)
        sentence.template, sentence.values = template, values
        return sentence

    @property
    def translated(self) -> str:
        return gettext(self.template) % self.values


def gettext_noop(template: str) -> str:
    """Mark *template* for translation."""
    # Django's function needs the settings, but event classes can be imported without them.
    return template


def translated(text: str) -> str:
    """Return a Sentence in the active language, and any other text unchanged."""
    return text.translated if isinstance(text, Sentence) else text


def is_storable(text: str) -> bool:
    """Whether a PostgreSQL text column can store *text*."""
    return "\x00" not in text and is_unicode(text)


def storable(text: str, limit: int) -> str:
    """Return *text* in a form that every database can store, cut to *limit* characters."""
    return text[:limit].encode(errors="replace").decode().replace("\x00", "\ufffd")


def storable_json(value: Any, depth: int = 0) -> Any:
    """Return *value* as JSON that jsonb of PostgreSQL accepts; other values are replaced."""
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
