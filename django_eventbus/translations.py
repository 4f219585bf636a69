"""Sentences that the bus keeps in English, and pages show in the language of their reader."""

from __future__ import annotations

import re

from django.utils.translation import gettext, override

#: Ours are shorter; in others' long texts they would be looked for in vain, and slowly.
_LONGEST = 500
_PLACEHOLDER = re.compile(r"%\((\w+)\)s|(%%)")
#: What these stand for is a word of ours too.
_OWN_WORDS = ("state", "kind", "wanted")
_SEVERAL = "; "
_known: dict[str, re.Pattern[str]] = {}


def gettext_noop(sentence: str) -> str:
    """Mark *sentence* to be translated."""
    # Not Django's own: it asks for the settings, and events are written before there are any.
    return sentence


def known(sentence: str) -> str:
    """Return *sentence*, marked by gettext_noop(), which translated() recognises from now on."""
    _known[sentence] = re.compile(_pattern(sentence), re.DOTALL)
    return sentence


def english(label: object) -> str:
    """Return a translatable *label* as it is written in the code, to be kept in a row."""
    with override(None):
        return str(label)


def translated(text: str) -> str:
    """Return a text that was kept, in the reader's language as far as it is made of sentences."""
    if len(text) > _LONGEST:
        return text
    return _read(text) or _SEVERAL.join(_read(each) or each for each in text.split(_SEVERAL))


def _read(text: str) -> str:
    """Return the translation of a sentence; "" if it is none that is known."""
    fitting = [(each, found) for each in _known if (found := _known[each].fullmatch(text))]
    if not fitting:
        return ""
    # Of two, the one that says more itself: "it was re-driven meanwhile" names no state.
    sentence, found = min(fitting, key=lambda each: sum(map(len, each[1].groups())))
    values = found.groupdict()
    own = {name: gettext(values[name]) for name in _OWN_WORDS if values.get(name)}
    return gettext(sentence) % {**values, **own}


def _pattern(sentence: str) -> str:
    pattern, end = "", 0
    for place in _PLACEHOLDER.finditer(sentence):
        name, percent = place.groups()
        pattern += re.escape(sentence[end : place.start()])
        pattern += "%" if percent else f"(?P<{name}>.+?)"
        end = place.end()
    return pattern + re.escape(sentence[end:])
