"""A message, its headers, and its id."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from django_eventbus.durations import is_too_far
from django_eventbus.events.text import Sentence, is_storable, storable, storable_json
from django_eventbus.events.text import gettext_noop as _

RETRY_COUNT = "x-retry-count"
ORIGINAL_EXCHANGE = "x-original-exchange"
ORIGINAL_ROUTING_KEY = "x-original-routing-key"
ORIGINAL_QUEUE = "x-original-queue"
FINAL_ERROR = "x-final-error"
FINAL_KIND = "x-final-kind"
FINAL_STATUS_CODE = "x-final-status-code"
FINAL_RETRY_COUNT = "x-final-retry-count"
REDRIVEN_AT = "x-redriven-at"
REDRIVEN_BY = "x-redriven-by"
REDRIVEN_COUNT = "x-redriven-count"
REDRIVEN_DEAD_LETTER = "x-redriven-dead-letter"
REDRIVEN_TRIES = "x-redriven-tries"
REDRIVEN_TRACEPARENT = "x-redriven-traceparent"
EDITED_FROM = "x-edited-from"
SUBSCRIPTION = "eventbus-subscription"
VERSION = "eventbus-version"
KEY = "eventbus-key"
CAUSATION = "eventbus-causation"
DEBUG = "eventbus-debug"
FORMAT = "eventbus-format"
NOT_BEFORE = "eventbus-not-before"
ROW = "eventbus-row"
TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"

#: The header with the properties that could not be read, in Base64.
UNREADABLE = "unreadable-properties"
_MADE = "sha256:"
_OWN_NUMBERS: tuple[str, ...] = (RETRY_COUNT, REDRIVEN_COUNT, REDRIVEN_DEAD_LETTER, REDRIVEN_TRIES)
_OWN_NUMBERS += (VERSION, NOT_BEFORE)
_OWN_TEXTS: tuple[str, ...] = (ORIGINAL_EXCHANGE, ORIGINAL_ROUTING_KEY, ORIGINAL_QUEUE, KEY)
_OWN_TEXTS += (SUBSCRIPTION, CAUSATION, FORMAT, REDRIVEN_AT, REDRIVEN_BY, EDITED_FROM)
_OWN_TEXTS += (TRACEPARENT, REDRIVEN_TRACEPARENT)

#: Headers that the broker sets or obeys. A copy with them could be dropped, expire or be copied.
_BROKERS_OWN = ("x-death", "x-first-death", "x-last-death", "x-delivery-count", "x-acquired-count")
_SHORT = 255
_NO_ID = "the message has no message_id"
_LONG_ID = "the message_id is longer than 255 bytes"
_BAD_ID = "the message_id contains a NUL or a lone surrogate"

#: The largest value of a counter: it is stored in an integer column and may still grow.
_MOST = 2**30
#: The highest number of tries that a re-drive may give a message, as in the form of the admin.
_MOST_TRIES = 100
#: How far the clock of a publisher may be ahead.
_AHEAD = timedelta(days=1)

_last_lock = threading.Lock()
_last_millisecond = 0
_last_sequence = 0
_NO_NAME = _("header %(name)s is not a name of at most 255 bytes")
_RESERVED = _("header %(name)s is reserved: x-*, eventbus-*, CC and BCC belong to the bus")
_NO_VALUE = _("header %(name)s is a %(type)s; write text, a whole number or a bool")
_TOO_BIG = _("header %(name)s does not fit 64 bits")
_NOT_STORABLE = _("header %(name)s contains a NUL or a lone surrogate")


# A Struct, because a frozen dataclass takes four times as long to create.
class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Body bytes, properties and headers as the broker has them. They may be malformed."""

    id: str
    type: str
    body: bytes
    content_type: str = "application/json"
    source: str = ""
    sent_at: datetime | None = None
    correlation_id: str = ""
    #: The address for an answer, created by the transport; "" if no answer is expected.
    reply_to: str = ""
    headers: Mapping[str, Any] = msgspec.field(default_factory=dict)
    exchange: str = ""
    routing_key: str = ""
    #: Why the transport could not read the message, or "".
    fault: str = ""
    #: The other fields of its format, read from the body or the headers. Never sent.
    extra: Mapping[str, Any] | None = None

    @property
    def attempt(self) -> int:
        return min(self.number(RETRY_COUNT), _MOST) + 1

    @property
    def round(self) -> int:
        return min(self.number(REDRIVEN_COUNT), _MOST)

    @property
    def is_first(self) -> bool:
        """Whether this is neither a retry nor a re-drive."""
        return self.attempt == 1 and not self.round

    @property
    def version(self) -> int:
        return min(self.number(VERSION), _MOST) or 1

    @property
    def subscription(self) -> str:
        """The subscription that the message is addressed to, or ""."""
        return self.text(SUBSCRIPTION)

    @property
    def topics(self) -> tuple[str, ...]:
        """The names that patterns are compared with: its type and its first routing key."""
        return tuple({self.type, self.first_routing_key})

    @property
    def first_routing_key(self) -> str:
        """The routing key of its first publication, before retries and re-drives."""
        return self.text(ORIGINAL_ROUTING_KEY) or self.routing_key

    @property
    def first_exchange(self) -> str:
        """The exchange of its first publication; "" if it was sent to a queue."""
        return self.text(ORIGINAL_EXCHANGE) or self.exchange

    @property
    def is_debug(self) -> bool:
        return self.headers.get(DEBUG) is True

    @property
    def not_before(self) -> datetime | None:
        return moment(self.number(NOT_BEFORE) / 1000) if self.number(NOT_BEFORE) else None

    @property
    def last_sent_at(self) -> datetime | None:
        """The latest of the times at which it was sent, due or re-driven."""
        times = (self.sent_at, self.not_before, self.redriven_at)
        return max(filter(None, times), default=None)

    @property
    def redriven_at(self) -> datetime | None:
        return past(parsed_time(self.text(REDRIVEN_AT)))

    @property
    def redriven_tries(self) -> int:
        """The number of tries that the re-drive gives the message; 0 if it gives none."""
        return min(self.number(REDRIVEN_TRIES), _MOST_TRIES)

    def number(self, name: str) -> int:
        """Return the header *name* as a number of at least 0; 0 if it is anything else."""
        value = self.headers.get(name, 0)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
            return int(value)
        is_number = isinstance(value, int) and not isinstance(value, bool)
        return value if is_number and 0 < value < 2**63 else 0

    def text(self, name: str) -> str:
        """Return the header *name* as text that fits into a column; "" if it is not text."""
        value = self.headers.get(name, "")
        return storable(value, _SHORT) if isinstance(value, str) else ""

    def copy_for(self, queue: str, **changes: object) -> Message:
        """Return a copy for *queue* with changed headers and without those of the broker."""
        kept = self._own_headers()
        kept.setdefault(ORIGINAL_EXCHANGE, self.exchange)
        kept.setdefault(ORIGINAL_ROUTING_KEY, self.routing_key)
        headers = {**kept, ORIGINAL_QUEUE: queue, **changes}
        return replace(self, headers=headers, reply_to="")

    def identified(self) -> Message:
        """Return the message with an id that can be stored: its own, or a hash of the message."""
        if self.id and not id_problem(self.id):
            return self
        # The hash must not include the broker's headers: one of them counts deliveries. It must
        # include the time and the routing key: different events may have equal bytes.
        headers = storable_json(self._own_headers())
        headers.pop(UNREADABLE, None)
        place = self.text(ORIGINAL_ROUTING_KEY) or storable(self.routing_key, _SHORT)
        parts = (ascii(self.id), sorted(headers.items()), self.sent_at, place)
        digest = hashlib.sha256(self.body + repr(parts).encode())
        return replace(self, id=f"{_MADE}{digest.hexdigest()}")

    def stripped(self) -> Message:
        """Return the message with only the headers of the bus, which can always be sent."""
        texts = {name: self.text(name) for name in _OWN_TEXTS}
        numbers = {name: self.number(name) for name in _OWN_NUMBERS}
        own = {**texts, **numbers, DEBUG: self.is_debug}
        kept = {name: value for name, value in own.items() if value}
        return replace(self, headers=kept)

    def _own_headers(self) -> dict[str, Any]:
        return {name: value for name, value in self.headers.items() if not is_of_its_past(name)}


def is_made(message_id: str) -> bool:
    """Whether the id is a hash of a message that had no usable id."""
    return message_id.startswith(_MADE)


def id_problem(message_id: str) -> str:
    if not message_id:
        return _NO_ID
    if len(message_id.encode(errors="replace")) > _SHORT:
        return _LONG_ID
    return "" if is_storable(message_id) else _BAD_ID


def is_brokers_own(name: str) -> bool:
    return name.lower().startswith(_BROKERS_OWN) or name.lower() in ("cc", "bcc")


def is_of_its_past(name: str) -> bool:
    """Whether a header records how the message ended, which a copy must not repeat."""
    return is_brokers_own(name) or name.lower().startswith("x-final-")


def moment(timestamp: float) -> datetime | None:
    """Return the time of *timestamp* seconds since 1970, or None if there is no such time."""
    try:
        found = datetime.fromtimestamp(timestamp, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return None if is_too_far(found) else found


def parsed_time(text: str) -> datetime | None:
    try:
        time_read = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time_read if time_read.tzinfo else time_read.replace(tzinfo=UTC)


def past(found: datetime | None) -> datetime | None:
    """Return *found*, or None if it is in the future or at an end of the calendar."""
    # There, a sum or another time zone raises OverflowError.
    if found is None or is_too_far(found) or found > datetime.now(UTC) + _AHEAD:
        return None
    return found


def uuid7() -> UUID:
    """Return a UUIDv7 (RFC 9562), ordered by time and, within a millisecond, by a counter."""
    millisecond, sequence = _next_tick(time.time_ns() // 1_000_000)
    random = int.from_bytes(os.urandom(8)) & (2**62 - 1)
    value = (millisecond & (2**48 - 1)) << 80 | 7 << 76 | sequence << 64 | 2 << 62 | random
    return UUID(int=value)


def _next_tick(now: int) -> tuple[int, int]:
    global _last_millisecond, _last_sequence
    with _last_lock:
        if now > _last_millisecond:
            _last_millisecond, _last_sequence = now, int.from_bytes(os.urandom(1))
        elif _last_sequence < 0xFFF:
            _last_sequence += 1
        else:
            _last_millisecond, _last_sequence = _last_millisecond + 1, 0
        return _last_millisecond, _last_sequence


def headers_problem(headers: Mapping[Any, Any]) -> str:
    """Return the first problem of a user's headers, or ""."""
    for name, value in headers.items():
        if not isinstance(name, str) or not 0 < len(name.encode(errors="replace")) <= _SHORT:
            return Sentence(_NO_NAME, name=repr(name))
        if is_reserved(name):
            return Sentence(_RESERVED, name=repr(name))
        if not isinstance(value, str | int):
            return Sentence(_NO_VALUE, name=repr(name), type=type(value).__name__)
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            return Sentence(_TOO_BIG, name=repr(name))
        if not is_storable(name) or not is_storable(str(value)):
            return Sentence(_NOT_STORABLE, name=repr(name))
    return ""


def is_reserved(name: str) -> bool:
    return name.lower().startswith(("x-", "eventbus-")) or name.lower() in ("cc", "bcc")
