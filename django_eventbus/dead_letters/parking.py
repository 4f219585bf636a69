"""Park a message, close it when it was handled after all, refuse what a person closed."""

from __future__ import annotations

import socket
import traceback
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import msgspec
from django.db import transaction
from django.db.models import Q
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
from django_eventbus.models import DeadLetter, FailureGroup
from django_eventbus.models.message_columns import message_columns
from django_eventbus.models.reasons import SkipReason
from django_eventbus.subscriptions.outcomes import Park
from django_eventbus.subscriptions.retries import words_of

#: Characters kept of a traceback: its end, where the error is.
TRACEBACK_LIMIT = 20_000
ERROR_LIMIT = 2_000
#: Closed by a person, who sent an edited message instead, or nothing.
_CLOSED_BY_PERSON = Q(state=DeadLetter.State.DISCARDED) | (
    Q(state__in=(*DeadLetter.AWAITED, DeadLetter.State.REPLACED)) & ~Q(replaced_by="")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkingCause:
    """Why a message is parked, as far as anybody knows."""

    kind: str
    error_type: str
    error: str
    place: str = ""
    traceback: str = ""


def parking_cause(outcome: Park, error: BaseException) -> ParkingCause:
    """Return what an *error* in this process tells."""
    return ParkingCause(
        kind=outcome.kind,
        error_type=type(error).__qualname__,
        error=words_of(error),
        place=project_frame(error),
        traceback=traceback_of(error),
    )


def park(
    message: Message, cause: ParkingCause, *, subscription: str, queue: str, using: str
) -> DeadLetter:
    """Write or reopen the dead letter of *message*; a copy that is not newer changes nothing."""
    signature = failure_signature(subscription, cause)
    values = _values(message.identified(), cause, signature)
    identity = {
        "subscription": subscription,
        "queue": queue,
        "message_id": values.pop("message_id"),
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
            # The next re-drive has to be newer than the last, or the inbox takes it for that.
            _reopen(letter, {**values, "round": letter.round})
    return letter


def _is_different_message(message: Message, letter: DeadLetter) -> bool:
    """Whether *message*, though equal, is not the one whose letter was closed."""
    # Without an id of their own they are told apart by nothing else: better seen twice than lost.
    return not message.round and is_made(letter.message_id)


def _reopen(letter: DeadLetter, values: dict[str, Any]) -> None:
    values |= {"state": DeadLetter.State.OPEN, "note": "", "unanswered": "", "closed_at": None}
    for name, value in values.items():
        setattr(letter, name, value)
    letter.save(using=letter._state.db, update_fields=list(values))


def heal(message: Message, name: str, *, states: Collection[str], using: str) -> bool:
    """Close the dead letters of a message that *name* has handled; tell whether each could be."""
    # Addressed to a name that nobody had at the time, it was parked under that name.
    names = {name, message.subscription} - {""}
    return DeadLetter.objects.using(using).heal(names, message.id, states) == len(names)


def heal_unreached(message: Message, *, queue: str, using: str) -> int:
    """Close the dead letter of a re-driven message that had reached no subscription before."""
    letters = DeadLetter.objects.using(using).filter(queue=queue)
    return letters.heal([""], message.identified().id, DeadLetter.WAITING)


class Discarded(Skip):
    """A person has closed or edited the dead letter that the message is a re-drive of."""

    def __init__(self, reason: SkipReason, detail: str) -> None:
        with override(None):
            super().__init__(reason.sentence(detail))
        self.skip_reason = reason
        self.detail = detail


def find_discard(message: Message, *, queue: str, using: str) -> Discarded | None:
    """Return how a person closed the dead letter that *message* is a re-drive of, if one did."""
    letters = DeadLetter.objects.using(using).filter(_CLOSED_BY_PERSON, queue=queue)
    mine = letters.filter(subscription=message.subscription, message_id=message.identified().id)
    with transaction.atomic(using=using):
        # Locked, for as long as the caller's transaction: it is not restored before that ends.
        found = mine.select_for_update().only("state", "note", "replaced_by").first()
    if found is None:
        return None
    if found.state == DeadLetter.State.DISCARDED:
        return Discarded(SkipReason.DISCARDED, found.note)
    return Discarded(SkipReason.REPLACED, found.replaced_by)


def raise_if_discarded(message: Message, *, queue: str, using: str) -> None:
    """Raise Discarded if it was, which it stays until the caller's transaction ends."""
    if discard := find_discard(message, queue=queue, using=using):
        raise discard


def raise_if_restored(message: Message, *, queue: str, using: str) -> None:
    """Raise Busy if it is not discarded any more: it is to come again, and then be tried."""
    if not find_discard(message, queue=queue, using=using):
        raise Busy(f"{message.id} was restored just now")


def traceback_of(error: BaseException) -> str:
    """Return the end of the error's traceback, such that every database can hold it."""
    text = "".join(traceback.format_exception(error))
    return storable(text[-TRACEBACK_LIMIT:], TRACEBACK_LIMIT)


def failure_signature(subscription: str, cause: ParkingCause) -> FailureSignature:
    """Return what the failure has in common with others."""
    return FailureSignature(
        subscription=subscription,
        kind=cause.kind,
        error_type=storable(cause.error_type, 255),
        place=storable(cause.place, 255),
        title=storable(normalised_message(cause.error_type, cause.error), ERROR_LIMIT),
    )


def _ensure_group(signature: FailureSignature, using: str) -> None:
    """Write the group of a failure that is the first of its like."""
    group = FailureGroup(
        fingerprint=signature.fingerprint,
        kind=signature.kind,
        subscription=signature.subscription,
        error_type=signature.error_type,
        place=signature.place,
        title=signature.title,
    )
    # Nothing is counted here: a row that each failure of a kind writes to would be waited for.
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
