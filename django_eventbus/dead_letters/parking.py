"""Park a message, close its dead letter when it was handled, and find discarded ones."""

from __future__ import annotations

import socket
import traceback
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import msgspec
from django.db import transaction
from django.db.models import Max, Q
from django.utils.translation import override

from django_eventbus.conf import conf
from django_eventbus.dead_letters.fingerprints import (
    FailureSignature,
    normalised_message,
    project_frame,
)
from django_eventbus.dead_letters.snapshot import parking_columns
from django_eventbus.events.formats import read
from django_eventbus.events.message import EDITED_FROM, KEY, Message, is_made
from django_eventbus.events.text import storable, storable_json
from django_eventbus.exceptions import Busy, Skip, Undecodable
from django_eventbus.models import DeadLetter, FailureGroup, InboxRecord
from django_eventbus.models.message_columns import message_columns
from django_eventbus.models.reasons import SkipReason
from django_eventbus.subscriptions.outcomes import Park
from django_eventbus.subscriptions.retries import error_text

#: The maximum length of a traceback. Its end is kept, because the error is there.
TRACEBACK_LIMIT = 20_000
ERROR_LIMIT = 2_000
#: A larger body is kept as bytes only: decoded, it takes many times its size in memory, and
#: PostgreSQL refuses arrays of millions of elements.
PAYLOAD_LIMIT = 4 * 1024 * 1024
#: Dead letters that a person discarded, or replaced with an edited message.
_CLOSED_BY_PERSON = Q(state=DeadLetter.State.DISCARDED) | (
    Q(state__in=(*DeadLetter.AWAITED, DeadLetter.State.REPLACED)) & ~Q(replaced_by="")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkingCause:
    """Why a message is parked."""

    kind: str
    error_type: str
    error: str
    place: str = ""
    traceback: str = ""


def parking_cause(outcome: Park, error: BaseException) -> ParkingCause:
    """Return the cause for an *error* in this process."""
    return ParkingCause(
        kind=outcome.kind,
        error_type=type(error).__qualname__,
        error=error_text(error),
        place=project_frame(error),
        traceback=traceback_of(error),
    )


def park(
    message: Message, cause: ParkingCause, *, subscription: str, queue: str, using: str
) -> DeadLetter:
    """Create or reopen the dead letter of *message*. A copy that is not newer has no effect."""
    signature = failure_signature(subscription, cause)
    values = _values(message.identified(), cause, signature)
    identity = {
        "subscription": subscription,
        "queue": queue,
        "message_id": values.pop("message_id"),
        "variant": "",
    }
    with transaction.atomic(using=using):
        values |= parking_columns(using)
        _ensure_group(signature, using)
        letters = DeadLetter.objects.using(using).select_for_update()
        letter, is_new = letters.get_or_create(**identity, defaults=values)
        is_awaited = message.round == letter.round and letter.state in DeadLetter.AWAITED
        if not is_new and (message.round > letter.round or is_awaited):
            _reopen(letter, values)
        elif letter.is_closed and _is_different_message(message, letter):
            # Keep the round: the inbox skips a re-drive that is not newer than the last one.
            _reopen(letter, {**values, "round": letter.round})
    return letter


def park_as_it_arrived(
    message: Message, error: Exception, *, subscription: str, queue: str, using: str
) -> DeadLetter:
    """Write a dead letter of its own with the exact bytes, and without anything that was read."""
    cause = parking_cause(Park(kind=DeadLetter.Kind.UNRECORDED, reason=""), error)
    signature = failure_signature(subscription, cause)
    plain = msgspec.structs.replace(message.identified(), headers={}, sent_at=None)
    values = {
        **message_columns(plain),
        "kind": cause.kind,
        "error_type": signature.error_type,
        "error": storable(cause.error, ERROR_LIMIT),
        "traceback": cause.traceback,
        "fingerprint": signature.fingerprint,
        "host": socket.gethostname()[:255],
    }
    with transaction.atomic(using=using):
        values |= parking_columns(using)
        _ensure_group(signature, using)
        letters = DeadLetter.objects.using(using)
        return letters.create(subscription=subscription, queue=queue, variant=uuid4().hex, **values)


def _is_different_message(message: Message, letter: DeadLetter) -> bool:
    """Whether *message* is a new message with the same hash as the closed dead letter."""
    # Equal messages without an id cannot be distinguished: a duplicate is better than a loss.
    return not message.round and is_made(letter.message_id)


def _reopen(letter: DeadLetter, values: dict[str, Any]) -> None:
    values |= {"state": DeadLetter.State.OPEN, "note": "", "unanswered": "", "closed_at": None}
    for name, value in values.items():
        setattr(letter, name, value)
    letter.save(using=letter._state.db, update_fields=list(values))


def heal(message: Message, name: str, *, states: Collection[str], using: str) -> bool:
    """Close the dead letters of a message that *name* handled; return whether all were closed."""
    # If no subscription had the name in its address, the message was parked under that name.
    names = {name, message.subscription} - {""}
    return DeadLetter.objects.using(using).heal(names, message.id, states) == len(names)


def heal_unreached(message: Message, *, queue: str, using: str) -> int:
    """Close the dead letter of a re-driven message that was parked without a subscription."""
    letters = DeadLetter.objects.using(using).filter(queue=queue)
    return letters.heal([""], message.identified().id, DeadLetter.WAITING)


def highest_round(message_id: str, using: str) -> int:
    """Return the highest round that is recorded for a message, in the inbox or as a dead letter."""
    tables = (InboxRecord.objects, DeadLetter.objects)
    found = (table.using(using).filter(message_id=message_id) for table in tables)
    return max(rows.aggregate(highest=Max("round"))["highest"] or 0 for rows in found)


class Discarded(Skip):
    """The message is a re-drive of a dead letter that a person has discarded or replaced."""

    def __init__(self, reason: SkipReason, detail: str) -> None:
        with override(None):
            super().__init__(reason.sentence(detail))
        self.skip_reason = reason
        self.detail = detail


def find_discard(message: Message, *, queue: str, using: str) -> Discarded | None:
    """Return how a person closed the dead letter of the re-drive *message*, or None."""
    letters = DeadLetter.objects.using(using).filter(_CLOSED_BY_PERSON, queue=queue)
    mine = letters.filter(subscription=message.subscription, message_id=message.identified().id)
    with transaction.atomic(using=using):
        # The lock prevents that it is restored before the caller's transaction ends.
        found = mine.select_for_update().only("state", "note", "replaced_by").first()
    if found is None:
        return None
    if found.state == DeadLetter.State.DISCARDED:
        return Discarded(SkipReason.DISCARDED, found.note)
    return Discarded(SkipReason.REPLACED, found.replaced_by)


def raise_if_discarded(message: Message, *, queue: str, using: str) -> None:
    """Raise Discarded if its dead letter was closed; it stays closed during the transaction."""
    if discard := find_discard(message, queue=queue, using=using):
        raise discard


def raise_if_restored(message: Message, *, queue: str, using: str) -> None:
    """Raise Busy if its dead letter was restored, so that the message is delivered again."""
    if not find_discard(message, queue=queue, using=using):
        raise Busy(f"{message.id} was restored a moment ago")


def traceback_of(error: BaseException) -> str:
    """Return the end of the error's traceback in a form that every database can store."""
    text = "".join(traceback.format_exception(error))
    return storable(text[-TRACEBACK_LIMIT:], TRACEBACK_LIMIT)


def failure_signature(subscription: str, cause: ParkingCause) -> FailureSignature:
    """Return the values that the failure shares with others of its group."""
    return FailureSignature(
        subscription=subscription,
        kind=cause.kind,
        error_type=storable(cause.error_type, 255),
        place=storable(cause.place, 255),
        title=storable(normalised_message(cause.error_type, cause.error), ERROR_LIMIT),
    )


def _ensure_group(signature: FailureSignature, using: str) -> None:
    """Create the group of a failure unless it exists."""
    group = FailureGroup(
        fingerprint=signature.fingerprint,
        kind=signature.kind,
        subscription=signature.subscription,
        error_type=signature.error_type,
        place=signature.place,
        title=signature.title,
    )
    # The group has no counters: parallel failures would wait for each other to write to its row.
    FailureGroup.objects.using(using).bulk_create([group], ignore_conflicts=True)


def _values(message: Message, cause: ParkingCause, signature: FailureSignature) -> dict[str, Any]:
    return {
        **message_columns(message),
        "key": message.text(KEY),
        "kind": cause.kind,
        "round": message.round,
        "attempts": message.attempt,
        "error_type": storable(cause.error_type, 255),
        "error": storable(cause.error, ERROR_LIMIT),
        "traceback": cause.traceback,
        "fingerprint": signature.fingerprint,
        "edited_from": message.text(EDITED_FROM),
        "payload": _payload(message),
        "host": socket.gethostname()[:255],
    }


def _payload(message: Message) -> Any:
    """Return the payload for a handler, or the whole body if its format is not valid."""
    if len(message.body) > min(conf.max_body_bytes, PAYLOAD_LIMIT):
        return None
    try:
        payload = _read(message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    # If the column cannot store it unchanged, store nothing: a changed copy would be misleading.
    return payload if storable_json(payload) == payload else None


def _read(message: Message) -> Any:
    try:
        return read(message, conf.max_body_bytes).payload
    except Undecodable:
        return msgspec.json.decode(message.body)
