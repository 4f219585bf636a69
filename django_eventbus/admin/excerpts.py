"""What a page shows of foreign bytes and texts: bounded, and always as text."""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from django.db.models import BinaryField, F, Func, IntegerField
from django.db.models.functions import Substr
from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext as _

from django_eventbus.models.carried_message import CarriedMessage
from django_eventbus.redaction import redacted

#: Bytes that are read of a body.
BODY_LIMIT = 32 * 1024
#: Bytes that are shown of a body that is no text.
DUMP_LIMIT = 1024
#: Characters that are shown of any one text: indenting can make a small body large.
TEXT_LIMIT = 100_000
HEADERS_LIMIT = 100
HEADER_LIMIT = 1_000
_DUMP_WIDTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """The start of a body, made readable."""

    text: str
    #: Bytes that the text stands for, and bytes that there are.
    shown: int
    size: int

    @property
    def is_cut(self) -> bool:
        return self.shown < self.size


def body_of(row: CarriedMessage, rules: tuple[str, ...] = ()) -> SafeString:
    """Render the body of *row* without what *rules* hide; only its start is read."""
    return render_to_string("admin/eventbus/excerpt.html", {"excerpt": excerpt_of(row, rules)})


def text_of(text: str) -> SafeString | str:
    """Render a long text, such as a traceback, with its lines kept; "-" if there is none."""
    excerpt = Excerpt(text=visible(text), shown=len(text), size=len(text))
    return render_to_string("admin/eventbus/excerpt.html", {"excerpt": excerpt}) if text else "-"


def headers_of(headers: Mapping[str, Any]) -> SafeString | str:
    """Render headers as a table; "-" if there are none."""
    names = sorted(headers)
    shown = [(visible(name), _header(headers[name])) for name in names[:HEADERS_LIMIT]]
    context = {"headers": shown, "hidden": len(names) - len(shown)}
    return render_to_string("admin/eventbus/headers.html", context) if shown else "-"


def short(text: str) -> str:
    """Return the start of *text* for a column of a list."""
    return Truncator(visible(text[:200])).chars(100)


def excerpt_of(row: CarriedMessage, rules: tuple[str, ...] = ()) -> Excerpt:
    """Read the start of the body of *row*."""
    rows = type(row)._base_manager.using(row._state.db).filter(pk=row.pk)
    size, start = rows.values_list(
        Func(F("body"), function="LENGTH", output_field=IntegerField()),
        Substr("body", 1, BODY_LIMIT, output_field=BinaryField()),
    ).get()
    return checked(bytes(start), size, rules) if rules else excerpt(bytes(start), size)


def checked(start: bytes, size: int, rules: tuple[str, ...]) -> Excerpt:
    """Make readable what *rules* leave of a body, and nothing of one that cannot be checked."""
    try:
        payload = msgspec.json.decode(start)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        words = _("Not shown: it cannot be told what of it is to be hidden from you.")
        return Excerpt(text=words, shown=size, size=size)
    shown = redacted(payload, "payload", rules)
    if shown == payload:
        return excerpt(start, size)
    text = json.dumps(shown, indent=2, ensure_ascii=False)
    return Excerpt(text=visible(text), shown=size, size=size)


def excerpt(start: bytes, size: int) -> Excerpt:
    """Make the *start* of a body of *size* bytes readable: as JSON, as text, or as a dump."""
    try:
        text = _indented(start) if len(start) == size else _text(start, is_whole=False)
    except UnicodeDecodeError:
        start = start[:DUMP_LIMIT]
        return Excerpt(text=_dump(start), shown=len(start), size=size)
    return Excerpt(text=visible(text), shown=len(start), size=size)


def visible(text: str) -> str:
    """Return *text*, bounded, with what is invisible or turns the writing direction escaped."""
    cut = text[:TEXT_LIMIT]
    shown = "".join(each if _is_plain(each) else _escaped(each) for each in cut)
    return shown if len(cut) == len(text) else shown + _("… (cut)")


def _is_plain(character: str) -> bool:
    return character.isprintable() or character in "\n\t"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _indented(body: bytes) -> str:
    try:
        # Formatted, not decoded and encoded: every digit stays as it was sent.
        return _text(msgspec.json.format(body, indent=2), is_whole=True)
    except (msgspec.MsgspecError, RecursionError):
        return _text(body, is_whole=True)


def _text(body: bytes, *, is_whole: bool) -> str:
    # A cut may have gone through a character: that is no reason to take it for no text.
    return codecs.getincrementaldecoder("utf-8")().decode(body, final=is_whole)


def _dump(body: bytes) -> str:
    starts = range(0, len(body), _DUMP_WIDTH)
    return "\n".join(_dump_line(at, body[at : at + _DUMP_WIDTH]) for at in starts)


def _dump_line(at: int, part: bytes) -> str:
    readable = "".join(chr(each) if 0x20 <= each < 0x7F else "." for each in part)
    return f"{at:08x}  {part.hex(' '):<{_DUMP_WIDTH * 3}} {readable}"


def _header(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Truncator(visible(text[: HEADER_LIMIT + 1])).chars(HEADER_LIMIT)
