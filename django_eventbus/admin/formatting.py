"""Format messages, differences and audit entries for people."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import unified_diff
from typing import Any

import msgspec
from django.db.models import BinaryField, F, Func, IntegerField
from django.db.models.functions import Substr
from django.template.loader import render_to_string
from django.utils.functional import Promise
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from django_eventbus.admin.forms import format_json
from django_eventbus.admin.model_admin import localised
from django_eventbus.admin.permissions import visible_groups
from django_eventbus.dead_letters.redaction import redacted
from django_eventbus.dead_letters.selection import Selection, Term
from django_eventbus.models.message_columns import MessageColumns

#: Counts by outcome.
_COUNTS: dict[str, Any] = {
    "healed": ngettext_lazy("%d healed", "%d healed"),
    "discarded": ngettext_lazy("%d discarded", "%d discarded"),
    "restored": ngettext_lazy("%d restored", "%d restored"),
    "changed": ngettext_lazy("%d changed", "%d changed"),
    "moved": ngettext_lazy("%d re-driven", "%d re-driven"),
    "failed": ngettext_lazy("%d failed again", "%d failed again"),
    "unknown": ngettext_lazy("%d unanswered", "%d unanswered"),
    "skipped": ngettext_lazy("%d skipped", "%d skipped"),
    "sent": ngettext_lazy("%d sent", "%d sent"),
    "pending": ngettext_lazy("%d pending", "%d pending"),
    "left": ngettext_lazy("%d left as it was", "%d left as they were"),
}
_TEXTS: dict[str, Promise] = {
    "from": gettext_lazy("from %s"),
    "to": gettext_lazy("to %s"),
    "format": gettext_lazy("as %s"),
    "failed": gettext_lazy("not done: %s"),
    "until": gettext_lazy("until %s"),
    "patch": gettext_lazy("payloads changed by %s"),
}


def result_in_words(outcome: Mapping[str, Any]) -> str:
    """Return *outcome* as text; unknown names are shown unchanged."""
    return ", ".join(_parts(outcome)) or _("nothing")


def _parts(outcome: Mapping[str, Any]) -> Iterator[str]:
    counts = {name: count for name, count in outcome.items() if _is_count(name, count)}
    yield from (_COUNTS[name] % counts[name] for name in _COUNTS if counts.get(name))
    yield from (_part(name, outcome[name]) for name in outcome if name not in counts)


def _is_count(name: str, value: object) -> bool:
    return name in _COUNTS and isinstance(value, int)


def _part(name: str, value: object) -> str:
    if (name, value) == ("until", ""):
        return _("shown again")
    if name in _TEXTS and isinstance(value, str):
        return str(_TEXTS[name]) % _value_text(name, value)
    return f"{name}: {value}"


def _value_text(name: str, text: str) -> str:
    if name == "until":
        return f"{localised(datetime.fromisoformat(text)):%Y-%m-%d %H:%M}"
    return text


#: Bytes of a body that are read.
BODY_LIMIT = 32 * 1024

#: Bytes that are shown of a body that is not text.
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
    #: The number of bytes in the text, and in the whole body.
    shown: int
    size: int

    @property
    def is_cut(self) -> bool:
        return self.shown < self.size


def render_body(row: MessageColumns, rules: tuple[str, ...] = ()) -> SafeString:
    """Render the start of the body of *row*, redacted by *rules*."""
    return render_to_string("admin/eventbus/excerpt.html", {"excerpt": excerpt_of(row, rules)})


def render_text(text: str) -> SafeString | str:
    """Render a long text, such as a traceback, with its lines kept; "-" if there is none."""
    excerpt = Excerpt(text=visible(text), shown=len(text), size=len(text))
    return render_to_string("admin/eventbus/excerpt.html", {"excerpt": excerpt}) if text else "-"


def render_headers(headers: Mapping[str, Any]) -> SafeString | str:
    """Render headers as a table; "-" if there are none."""
    names = sorted(headers)
    shown = [(visible(name), _header(headers[name])) for name in names[:HEADERS_LIMIT]]
    context = {"headers": shown, "hidden": len(names) - len(shown)}
    return render_to_string("admin/eventbus/headers.html", context) if shown else "-"


def short(text: str) -> str:
    """Return the start of *text* for a column of a list."""
    return Truncator(visible(text[:200])).chars(100)


def excerpt_of(row: MessageColumns, rules: tuple[str, ...] = ()) -> Excerpt:
    """Return the start of the body of *row*, redacted by *rules*."""
    rows = type(row)._base_manager.using(row._state.db).filter(pk=row.pk)
    size, start = rows.values_list(
        Func(F("body"), function="LENGTH", output_field=IntegerField()),
        Substr("body", 1, BODY_LIMIT, output_field=BinaryField()),
    ).get()
    return redacted_excerpt(bytes(start), size, rules) if rules else excerpt(bytes(start), size)


def redacted_excerpt(start: bytes, size: int, rules: tuple[str, ...]) -> Excerpt:
    """Return a body redacted by *rules*; nothing of a body that cannot be checked against them."""
    try:
        payload = msgspec.json.decode(start)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        words = _("Not shown, because it cannot be checked which values are hidden from you.")
        return Excerpt(text=words, shown=size, size=size)
    shown = redacted(payload, "payload", rules)
    if shown == payload:
        return excerpt(start, size)
    text = json.dumps(shown, indent=2, ensure_ascii=False)
    return Excerpt(text=visible(text), shown=size, size=size)


def excerpt(start: bytes, size: int) -> Excerpt:
    """Return the *start* of a body of *size* bytes as JSON, as text, or as a hex dump."""
    try:
        text = _indented(start) if len(start) == size else _text(start, is_whole=False)
    except UnicodeDecodeError:
        start = start[:DUMP_LIMIT]
        return Excerpt(text=_dump(start), shown=len(start), size=size)
    return Excerpt(text=visible(text), shown=len(start), size=size)


def visible(text: str) -> str:
    """Return *text*, bounded, with invisible characters and changes of direction escaped."""
    cut = text[:TEXT_LIMIT]
    shown = "".join(each if _is_plain(each) else _escaped(each) for each in cut)
    return shown if len(cut) == len(text) else shown + _("… (cut)")


def _is_plain(character: str) -> bool:
    return character.isprintable() or character in "\n\t"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _indented(body: bytes) -> str:
    try:
        # Formatted, not decoded and encoded again: every digit stays as it was sent.
        return _text(msgspec.json.format(body, indent=2), is_whole=True)
    except (msgspec.MsgspecError, RecursionError):
        return _text(body, is_whole=True)


def _text(body: bytes, *, is_whole: bool) -> str:
    # The end may be in the middle of a character: it is text nevertheless.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffLine:
    """A line of a diff: "added", "removed", "place" or the same."""

    kind: str
    text: str


def diff_of_json(old: Any, new: Any) -> list[DiffLine]:
    """Return the differences of two values, line by line."""
    sides = format_json(old).splitlines(), format_json(new).splitlines()
    return list(_lines(unified_diff(*sides, lineterm="", n=3)))


def _lines(diff: Iterator[str]) -> Iterator[DiffLine]:
    kinds = {"+": "added", "-": "removed", "@": "place"}
    for number, line in enumerate(diff):
        # The first two name files.
        if number > 1:
            yield DiffLine(kind=kinds.get(line[:1], "same"), text=visible(line))


def selection_in_words(selection: Selection, user: Any, using: str) -> str:
    """Return *selection* as text, with groups named by their failures, and its time if it is frozen."""
    shown = [term for term in selection.terms if term.name != "as_of"]
    terms = [_with_group_name(term, user, using) for term in shown]
    words = Selection(tuple(terms)).words()
    if not selection.snapshot:
        return words
    at = localised(selection.snapshot.at)
    return _("%(words)s, as of %(time)s") % {"words": words, "time": f"{at:%Y-%m-%d %H:%M:%S}"}


def _with_group_name(term: Term, user: Any, using: str) -> Term:
    if term.name != "group":
        return term
    group = visible_groups(user, using).filter(pk=term.value).first()
    return replace(term, text=f"“{visible(str(group))}”") if group else term
