"""Whether a dead letter's message, as it is or as edited, is one that its handler can be given."""

from __future__ import annotations

from typing import Any

import msgspec

from django_eventbus.conf import conf
from django_eventbus.events import Event
from django_eventbus.exceptions import InvalidEvent, InvalidPayload, Unreadable
from django_eventbus.formats import read
from django_eventbus.messages import SUBSCRIPTION, Message
from django_eventbus.models import DeadLetter
from django_eventbus.payloads import body_of
from django_eventbus.sentences import gettext_noop as _
from django_eventbus.sentences import known
from django_eventbus.subscriptions import Subscription, registry

_MISSING = known(_("%(event)s: %(field)s is missing"))


def receivers_of(letter: DeadLetter) -> list[Subscription]:
    """Return the subscriptions that a re-drive of *letter* would run for."""
    address = {SUBSCRIPTION: letter.subscription} if letter.subscription else {}
    return registry.receivers(letter.queue, letter.message(**address))


def payload_or_none(letter: DeadLetter) -> Any:
    """Return what the body says, or None if it cannot be read."""
    try:
        return read(letter.message(), conf.max_body_bytes).payload
    except Unreadable:
        return None


def is_readable(letter: DeadLetter) -> bool:
    """Whether the body says anything: null is something."""
    try:
        read(letter.message(), conf.max_body_bytes)
    except Unreadable:
        return False
    return True


def unsendable(payload: Any) -> list[str]:
    """Say why *payload* cannot be sent as JSON, or return nothing."""
    try:
        body_of(payload, conf.max_body_bytes)
    except InvalidEvent as error:
        return [str(error)]
    return []


def problems_with(letter: DeadLetter, payload: Any) -> list[str]:
    """Say everything that keeps handlers from being given *payload*, a sentence each."""
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
        return fields or [str(error)]
    except Unreadable as error:
        return [str(error)]
    return []


def _field_problems(event_class: type[Event], payload: Any) -> list[str]:
    """Return what is wrong with each field: msgspec itself stops at the first."""
    if not isinstance(payload, dict):
        return []
    found = []
    for field in msgspec.structs.fields(event_class):
        name = field.encode_name
        if name not in payload:
            if field.required:
                found.append(_MISSING % {"event": event_class.__name__, "field": name})
            continue
        try:
            msgspec.convert(payload[name], field.type, str_keys=True)
        except msgspec.ValidationError as error:
            found.append(f"{event_class.__name__}: {name}: {error}")
    return found
