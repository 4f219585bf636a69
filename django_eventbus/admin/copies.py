"""A dead letter as a text to take along: as a test, and as a command."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil
from pprint import pformat
from shlex import quote
from textwrap import indent
from typing import Any

from django.utils.translation import gettext as _

from django_eventbus.edited_messages import own_headers
from django_eventbus.models import DeadLetter
from django_eventbus.redaction import HIDDEN, redacted
from django_eventbus.validation import payload_or_none

#: A body that is larger than this belongs in a file.
BODY_LIMIT = 32 * 1024
_MOST_ROWS = 20
_WIDTH = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A text with its title."""

    title: str
    text: str

    @property
    def rows(self) -> int:
        rows = sum(max(ceil(len(line) / _WIDTH), 1) for line in self.text.split("\n"))
        return min(rows, _MOST_ROWS)


def copies_of(letter: DeadLetter, rules: tuple[str, ...]) -> list[Copy]:
    """Return *letter* as texts, without what *rules* hide."""
    test = Copy(title=_("As a pytest test"), text=pytest_of(letter, rules))
    command = Copy(title=_("As a command"), text=command_of(letter))
    return [test, command] if test.text else [command]


def pytest_of(letter: DeadLetter, rules: tuple[str, ...]) -> str:
    """Return a test that delivers the message to the subscription that failed; "" if none can."""
    payload = payload_or_none(letter) if len(bytes(letter.body)) <= BODY_LIMIT else None
    if payload is None or not letter.subscription:
        return ""
    name = re.sub(r"\W+", "_", f"{letter.subscription}_handles_{letter.type}").lower()
    shown = redacted(payload, "payload", rules)
    is_hidden = shown != payload or _headers(letter, rules) != _headers(letter, ())
    note = f"    # {_hidden_note()}\n" if is_hidden else ""
    arguments = [
        repr(letter.type),
        _literal(shown),
        f"subscription={letter.subscription!r}",
        *_headers(letter, rules),
    ]
    lines = "".join(f"{indent(each, ' ' * 8)},\n" for each in arguments)
    return (
        f"def test_{name}(eventbus):\n{note}"
        f"    delivered = eventbus.deliver(\n{lines}    )\n\n"
        "    assert delivered.errors == []\n"
    )


def _hidden_note() -> str:
    words = _("What is '%(hidden)s' is hidden from you: put other values there.")
    return words % {"hidden": HIDDEN}


def command_of(letter: DeadLetter) -> str:
    """Return the command that re-drives *letter*."""
    filters = {"message_id": letter.message_id, "subscription": letter.subscription}
    words = [quote(f"{name}={text}") for name, text in filters.items() if text]
    return " ".join(["python manage.py redrive_events", *words])


def _headers(letter: DeadLetter, rules: tuple[str, ...]) -> list[str]:
    # Foreign ones may be of kinds that no user of ours can set.
    own = {
        name: value for name, value in own_headers(letter).items() if isinstance(value, str | int)
    }
    return [f"headers={_literal(redacted(own, 'headers', rules))}"] if own else []


def _literal(value: Any) -> str:
    return pformat(value, width=_WIDTH, sort_dicts=False)
