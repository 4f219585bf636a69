"""What came of an action, in words: the audit keeps it as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from django_eventbus.admin.read_only import localised
from django_eventbus.sentences import translated

#: How many, by what became of them.
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
    """Say what *outcome* says; what is not known is shown as it is."""
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
        return str(_TEXTS[name]) % _read(name, value)
    return f"{name}: {value}"


def _read(name: str, text: str) -> str:
    if name == "until":
        return f"{localised(datetime.fromisoformat(text)):%Y-%m-%d %H:%M}"
    # A patch is nobody's sentence.
    return text if name == "patch" else translated(text)
