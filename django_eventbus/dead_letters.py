"""Park messages as dead letters, and close them when they are handled after all."""

from __future__ import annotations

import socket
import traceback
from dataclasses import dataclass
from typing import Any

import msgspec
from django.db import transaction
from django.utils import timezone

from django_eventbus.conf import conf
from django_eventbus.exceptions import Undecodable
from django_eventbus.fingerprints import Likeness, own_place, without_what_varies
from django_eventbus.formats import read
from django_eventbus.messages import EDITED_FROM, KEY, Message, is_made, storable, storable_json
from django_eventbus.models import DeadLetter, FailureGroup
from django_eventbus.models.carried_message import columns_of
from django_eventbus.outcomes import Park
from django_eventbus.retries import words_of

#: Characters kept of a traceback: its end, where the error is.
TRACEBACK_LIMIT = 20_000
ERROR_LIMIT = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a message is parked, as far as anybody knows."""

    kind: str
    error_type: str
    error: str
    place: str = ""
    traceback: str = ""


def cause_of(outcome: Park, error: BaseException) -> Cause:
    """Return what an *error* in this process tells."""
    return Cause(
        kind=outcome.kind,
        error_type=type(error).__qualname__,
        error=words_of(error),
        place=own_place(error),
        traceback=traceback_of(error),
    )


def park(
    message: Message, cause: Cause, *, subscription: str, queue: str, using: str
) -> DeadLetter:
    """Write or reopen the dead letter of *message*; a copy that is not newer changes nothing."""
    likeness = likeness_of(subscription, cause)
    values = _values(message.identified(), cause, likeness)
    identity = {
        "subscription": subscription,
        "queue": queue,
        "message_id": values.pop("message_id"),
    }
    with transaction.atomic(using=using):
        _introduce(likeness, using)
        letters = DeadLetter.objects.using(using).select_for_update()
        letter, is_new = letters.get_or_create(**identity, defaults=values)
        awaited = (DeadLetter.State.REDRIVING, DeadLetter.State.UNKNOWN)
        is_awaited = message.round == letter.round and letter.state in awaited
        if not is_new and (message.round > letter.round or is_awaited):
            _reopen(letter, values)
        elif letter.is_closed and _is_another(message, letter):
            # The next re-drive has to be newer than the last, or the inbox takes it for that.
            _reopen(letter, {**values, "round": letter.round})
    return letter


def _is_another(message: Message, letter: DeadLetter) -> bool:
    """Whether *message*, though equal, is not the one whose letter was closed."""
    # Without an id of their own they are told apart by nothing else: better seen twice than lost.
    return not message.round and is_made(letter.message_id)


def _reopen(letter: DeadLetter, values: dict[str, Any]) -> None:
    values |= {"state": DeadLetter.State.OPEN, "parked_at": timezone.now()}
    values |= {"note": "", "closed_at": None}
    for name, value in values.items():
        setattr(letter, name, value)
    letter.save(using=letter._state.db, update_fields=list(values))


def heal_unreached(message: Message, *, queue: str, using: str) -> int:
    """Close the dead letter of a re-driven message that had reached no subscription before."""
    letters = DeadLetter.objects.using(using).filter(queue=queue)
    return letters.heal(subscription="", message_id=message.identified().id)


def was_discarded(message: Message, *, queue: str, using: str) -> bool:
    """Whether a person has closed the dead letter that *message* is a re-drive of."""
    letters = DeadLetter.objects.using(using).filter(state=DeadLetter.State.DISCARDED, queue=queue)
    mine = letters.filter(subscription=message.subscription, message_id=message.identified().id)
    return mine.exists()


def traceback_of(error: BaseException) -> str:
    """Return the end of the error's traceback, such that every database can hold it."""
    text = "".join(traceback.format_exception(error))
    return storable(text[-TRACEBACK_LIMIT:], TRACEBACK_LIMIT)


def likeness_of(subscription: str, cause: Cause) -> Likeness:
    """Return what the failure has in common with others."""
    return Likeness(
        subscription=subscription,
        kind=cause.kind,
        error_type=storable(cause.error_type, 255),
        place=storable(cause.place, 255),
        title=storable(without_what_varies(cause.error), ERROR_LIMIT),
    )


def _introduce(likeness: Likeness, using: str) -> None:
    """Write the group of a failure that is the first of its like."""
    group = FailureGroup(
        fingerprint=likeness.fingerprint,
        kind=likeness.kind,
        subscription=likeness.subscription,
        error_type=likeness.error_type,
        place=likeness.place,
        title=likeness.title,
    )
    # Nothing is counted here: a row that each failure of a kind writes to would be waited for.
    FailureGroup.objects.using(using).bulk_create([group], ignore_conflicts=True)


def _values(message: Message, cause: Cause, likeness: Likeness) -> dict[str, Any]:
    return {
        **columns_of(message),
        "key": message.text(KEY),
        "kind": cause.kind,
        "round": message.round,
        "attempts": message.attempt,
        "error_type": storable(cause.error_type, 255),
        "error": storable(cause.error, ERROR_LIMIT),
        "traceback": cause.traceback,
        "fingerprint": likeness.fingerprint,
        "edited_from": message.text(EDITED_FROM),
        "payload": _payload(message),
        "host": socket.gethostname()[:255],
    }


def _payload(message: Message) -> Any:
    """Return what a handler would be given; of what no format explains, the whole body."""
    try:
        payload = _read(message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    # Unchanged or not at all: an edited copy would be taken for what was sent.
    return payload if storable_json(payload) == payload else None


def _read(message: Message) -> Any:
    try:
        return read(message, conf.max_body_bytes).payload
    except Undecodable:
        return msgspec.json.decode(message.body)
