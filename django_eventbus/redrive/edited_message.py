"""Build and validate the message that replaces an edited dead letter."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgspec
from django.utils import timezone
from django.utils.translation import gettext as _

from django_eventbus.conf import conf
from django_eventbus.events.event import Event
from django_eventbus.events.formats import read, with_payload
from django_eventbus.events.message import (
    CAUSATION,
    EDITED_FROM,
    SUBSCRIPTION,
    Message,
    headers_problem,
    is_reserved,
    uuid7,
)
from django_eventbus.events.payload import body_of
from django_eventbus.events.text import Sentence, gettext_noop, storable_json
from django_eventbus.exceptions import BadEdit, BadPlan, InvalidEvent, InvalidPayload, Unreadable
from django_eventbus.models import DeadLetter
from django_eventbus.subscriptions.subscription import Subscription, registry

_MISSING = gettext_noop("%(event)s: %(field)s is missing")


def merged(target: Any, patch: Any) -> Any:
    """Apply a JSON merge *patch*: objects are merged, null removes, any other value replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def require_storable(patch: Any) -> None:
    """Raise BadPlan if *patch* contains a value that a plan cannot store."""
    if storable_json(patch) != patch:
        words = _(
            "This patch cannot be stored: it contains a NUL, a lone surrogate, "
            "a number that is too large, or too many levels."
        )
        raise BadPlan(words)


def receivers_of(letter: DeadLetter) -> list[Subscription]:
    """Return the subscriptions that a re-drive of *letter* would run for."""
    address = {SUBSCRIPTION: letter.subscription} if letter.subscription else {}
    return registry.receivers(letter.queue, letter.message(**address))


def payload_or_none(letter: DeadLetter) -> Any:
    """Return the payload, or None if it cannot be read."""
    try:
        return read(letter.message(), conf.max_body_bytes).payload
    except Unreadable:
        return None


def is_readable(letter: DeadLetter) -> bool:
    """Whether the payload can be read. It may be null."""
    try:
        read(letter.message(), conf.max_body_bytes)
    except Unreadable:
        return False
    return True


def unsendable(payload: Any) -> list[str]:
    """Return the reason why *payload* cannot be sent as JSON, if any."""
    try:
        body_of(payload, conf.max_body_bytes)
    except InvalidEvent as error:
        return [_sentence_of(error)]
    return []


def problems_with(letter: DeadLetter, payload: Any) -> list[str]:
    """Return a sentence for each reason why a handler could not receive *payload*."""
    message = letter.message()
    found = (each for receiver in receivers_of(letter) for each in _all(receiver, message, payload))
    return list(dict.fromkeys(found))


def _all(subscription: Subscription, message: Message, payload: Any) -> list[str]:
    try:
        subscription.event(message, payload)
    except InvalidPayload as error:
        event_class = subscription.event_class
        is_current = event_class and event_class.event_version == message.version
        fields = _field_problems(event_class, payload) if event_class and is_current else []
        return fields or [_sentence_of(error)]
    except Unreadable as error:
        return [_sentence_of(error)]
    return []


def _sentence_of(error: Exception) -> str:
    # Not str(error): the argument may be a Sentence, which pages translate.
    return error.args[0] if error.args else ""


def _field_problems(event_class: type[Event], payload: Any) -> list[str]:
    """Return the problems of all fields: msgspec itself reports only the first."""
    if not isinstance(payload, dict):
        return []
    found: list[str] = []
    for field in msgspec.structs.fields(event_class):
        name = field.encode_name
        if name not in payload:
            if field.required:
                found.append(Sentence(_MISSING, event=event_class.__name__, field=name))
            continue
        try:
            msgspec.convert(payload[name], field.type, str_keys=True)
        except msgspec.ValidationError as error:
            found.append(f"{event_class.__name__}: {name}: {error}")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A new payload, and new headers of the user; None means that the headers do not change."""

    payload: Any
    headers: dict[str, Any] | None = None


def patched(letter: DeadLetter, patch: Any) -> Edit:
    """Return the edit that applies a JSON merge *patch* to the payload of *letter*."""
    return Edit(payload=merged(payload_or_none(letter), patch))


def own_headers(letter: DeadLetter) -> dict[str, Any]:
    """Return the headers that a person may change: not those of the bus and the broker."""
    return {name: value for name, value in letter.headers.items() if not is_reserved(name)}


def problems_of(letter: DeadLetter, edit: Edit) -> list[str]:
    """Return a sentence for each problem of *edit*."""
    found = unsendable(edit.payload) or problems_with(letter, edit.payload)
    if edit.headers is not None and (problem := headers_problem(edit.headers)):
        found.append(problem)
    return found


def is_unchanged(letter: DeadLetter, edit: Edit) -> bool:
    """Whether *edit* is equal to the message."""
    headers = own_headers(letter)
    try:
        old = _text(payload_or_none(letter), headers)
        new = _text(edit.payload, headers if edit.headers is None else edit.headers)
    except RecursionError:
        return False
    return old == new and is_readable(letter)


def _text(*values: Any) -> str:
    # Compare JSON text: in Python, 1 == True.
    return json.dumps(values, sort_keys=True, default=str)


def edited_message(letter: DeadLetter, edit: Edit) -> Message:
    """Return a new message with the old one as cause, or raise BadEdit with all problems."""
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
