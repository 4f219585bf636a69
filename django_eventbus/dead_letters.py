"""Park messages as dead letters, close them, and discard them."""

from __future__ import annotations

import hashlib
import re
import socket
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
from django.db import transaction
from django.utils import timezone

from django_eventbus.messages import Message, is_made, storable, storable_json
from django_eventbus.models import DeadLetter, InboxRecord
from django_eventbus.models.carried_message import columns_of
from django_eventbus.outcomes import Park
from django_eventbus.retries import words_of

#: Characters kept of a traceback: its end, where the error is.
TRACEBACK_LIMIT = 20_000
ERROR_LIMIT = 2_000
_VARYING = re.compile(r"0x[0-9a-fA-F]+|[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|\d+")


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
        place=last_place(error).rpartition(":")[0],
        traceback=traceback_of(error),
    )


def park(
    message: Message, cause: Cause, *, subscription: str, queue: str, using: str
) -> DeadLetter:
    """Write or reopen the dead letter of *message*; a copy that is not newer changes nothing."""
    values = _values(message.identified(), cause, subscription)
    identity = {
        "subscription": subscription,
        "queue": queue,
        "message_id": values.pop("message_id"),
    }
    with transaction.atomic(using=using):
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


def discard(ids: Iterable[int], *, reason: str, by: str, using: str) -> int:
    """Close open dead letters for good; a copy that still arrives is not run. Return how many."""
    return sum(_discard_one(each, reason, by, using) for each in ids)


def _discard_one(letter_id: int, reason: str, by: str, using: str) -> bool:
    letters = DeadLetter.objects.using(using).redrivable().filter(pk=letter_id)
    found = letters.first()
    if found is None:
        return False
    with transaction.atomic(using=using):
        # The record before the letter, as the consumer does: the other order can deadlock.
        records = InboxRecord.objects.using(using).select_for_update()
        mine = records.filter(subscription=found.subscription, message_id=found.message_id)
        record, letter = mine.first(), letters.select_for_update().first()
        if letter is None:
            return False
        letter.discard(reason, by)
        if record:
            record.skipped(letter.message(), f"discarded: {reason}")
    return True


def traceback_of(error: BaseException) -> str:
    """Return the end of the error's traceback, such that every database can hold it."""
    text = "".join(traceback.format_exception(error))
    return storable(text[-TRACEBACK_LIMIT:], TRACEBACK_LIMIT)


def fingerprint_of(subscription: str, cause: Cause) -> str:
    """Return the same text for the same failure of different messages."""
    words = _VARYING.sub("#", cause.error)[:500]
    parts = "\n".join((subscription, cause.error_type, cause.place, words))
    return hashlib.sha256(parts.encode(errors="replace")).hexdigest()


def last_place(error: BaseException) -> str:
    """Return file, function and line where the error last was in code that is no package."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "site-packages" not in frame.filename]
    return f"{own[-1].filename}:{own[-1].name}:{own[-1].lineno}" if own else ""


def _values(message: Message, cause: Cause, subscription: str) -> dict[str, Any]:
    return {
        **columns_of(message),
        "kind": cause.kind,
        "round": message.round,
        "attempts": message.attempt,
        "error_type": storable(cause.error_type, 255),
        "error": storable(cause.error, ERROR_LIMIT),
        "traceback": cause.traceback,
        "fingerprint": fingerprint_of(subscription, cause),
        "payload": _payload(message),
        "host": socket.gethostname()[:255],
    }


def _payload(message: Message) -> Any:
    try:
        payload = msgspec.json.decode(message.body)
        # Unchanged or not at all: an edited copy would be taken for what was sent.
        return payload if storable_json(payload) == payload else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
