"""What goes out in the place of a dead letter that a person has edited."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgspec
from django.utils import timezone

from django_eventbus.conf import conf
from django_eventbus.exceptions import BadEdit
from django_eventbus.formats import with_payload
from django_eventbus.headers import headers_problem, is_reserved
from django_eventbus.merge_patches import merged
from django_eventbus.messages import CAUSATION, EDITED_FROM, Message, uuid7
from django_eventbus.models import DeadLetter
from django_eventbus.payloads import body_of
from django_eventbus.validation import is_readable, payload_or_none, problems_with, unsendable


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A payload, and headers of one's own; None: those it had."""

    payload: Any
    headers: dict[str, Any] | None = None


def patched(letter: DeadLetter, patch: Any) -> Edit:
    """Return the edit that a JSON merge *patch* makes of the letter's payload."""
    return Edit(payload=merged(payload_or_none(letter), patch))


def own_headers(letter: DeadLetter) -> dict[str, Any]:
    """Return the headers that a person may change: all but the bus's and the broker's."""
    return {name: value for name, value in letter.headers.items() if not is_reserved(name)}


def problems_of(letter: DeadLetter, edit: Edit) -> list[str]:
    """Say everything that is wrong with *edit*, a sentence each."""
    found = unsendable(edit.payload) or problems_with(letter, edit.payload)
    if edit.headers is not None and (problem := headers_problem(edit.headers)):
        found.append(problem)
    return found


def is_unchanged(letter: DeadLetter, edit: Edit) -> bool:
    """Whether *edit* says what the message says already."""
    headers = own_headers(letter)
    try:
        old = _text(payload_or_none(letter), headers)
        new = _text(edit.payload, headers if edit.headers is None else edit.headers)
    except RecursionError:
        return False
    return old == new and is_readable(letter)


def _text(*values: Any) -> str:
    # Not the values themselves: Python takes 1 and true for the same.
    return json.dumps(values, sort_keys=True, default=str)


def edited_message(letter: DeadLetter, edit: Edit) -> Message:
    """Return a new message, caused by the old one; raise BadEdit with everything wrong with it."""
    if problems := problems_of(letter, edit):
        raise BadEdit(problems)
    old = letter.message()
    kept = {name: value for name, value in old.headers.items() if is_reserved(name)}
    headers = own_headers(letter) if edit.headers is None else edit.headers
    new = msgspec.structs.replace(
        old,
        id=str(uuid7()),
        sent_at=timezone.now(),
        correlation_id=old.correlation_id or old.id,
        headers={**headers, **kept, CAUSATION: old.id, EDITED_FROM: old.id},
        fault="",
    )
    return with_payload(new, body_of(edit.payload, conf.max_body_bytes))
