"""
Every error of the package, as one tree.

EventBusError
├── BadSetting              a key of EVENTBUS is wrong
├── InvalidEvent            publish() refused it; nothing was written
├── NoTransaction           publish() outside a transaction while REQUIRE_TRANSACTION is on
├── Unreadable              a message that no handler can be given
│   ├── Undecodable         its bytes, id or headers cannot be read
│   ├── InvalidPayload      its payload does not fit the event's fields
│   ├── UnknownVersion      its version is newer than the event class
│   └── Unmatched           nothing on its queue subscribes to it
├── NotCommitted            a handler returned, but its transaction did not commit
├── HandlerTimeout          a handler took longer than its timeout, and was rolled back
├── ForwardFailed           an HTTP endpoint did not take an event
├── Busy                    another worker is handling the same message now
├── TooOld                  older than what the inbox remembers
├── StartedTooOften         its handler started and never came back, too many times
├── KeyHeld                 an earlier event of its key is parked
├── AppendOnly              an entry of the audit was to be changed
├── BadSelection            a filter of dead letters cannot be read
├── BadPlan                 a plan cannot be made or changed so
│   └── NothingToDo         nothing that is meant could be changed
├── BadEdit                 an edited message cannot be sent
├── UnknownQueue            a command was given a queue that is not this project's
├── BrokerRefused           the broker answers, and says no: a login, a queue's arguments
├── Unavailable             an outage, never a failed attempt
│   ├── BrokerUnavailable
│   └── DatabaseUnavailable
└── Verdict                 raised by handlers to choose the outcome
    ├── RetryLater
    ├── GiveUp
    ├── Skip
    └── TooEarly
"""

from __future__ import annotations

from datetime import datetime

from django.core.exceptions import ImproperlyConfigured

from django_eventbus.durations import Duration, seconds


class EventBusError(Exception):
    """Root of the tree. Do not raise directly."""


class BadSetting(EventBusError, ImproperlyConfigured):
    """A key of the EVENTBUS setting is missing, unknown or of the wrong kind."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"EVENTBUS[{key!r}]: {problem}")
        self.key = key


class InvalidEvent(EventBusError, ValueError):
    """The event cannot be published as it is; nothing was written."""


class NoTransaction(EventBusError):
    """REQUIRE_TRANSACTION is on and publish() was called outside a transaction."""


class KeyHeld(EventBusError):
    """An earlier event of the same key is parked, and the subscription holds keys."""


class Unreadable(EventBusError):
    """A message that no handler can be given. Do not raise directly."""


class Undecodable(Unreadable):
    """The bytes, the id or the headers of a message cannot be read."""


class InvalidPayload(Unreadable):
    """The payload does not fit the fields of the event class."""


class UnknownVersion(Unreadable):
    """The message is of a newer version than this process knows."""


class Unmatched(Unreadable):
    """Nothing on the queue subscribes to the message."""


class NotCommitted(EventBusError):
    """The handler returned, but its transaction did not commit."""


class HandlerTimeout(EventBusError):
    """The handler returned after its timeout; what it wrote was rolled back."""


class ForwardFailed(EventBusError):
    """The endpoint did not take the event. Its status decides what follows."""

    def __init__(self, words: str, status_code: int | None = None, retry_after: str = "") -> None:
        super().__init__(words)
        self.status_code = status_code
        self.retry_after = retry_after


class Busy(EventBusError):
    """Another worker is handling the same message right now."""


class TooOld(EventBusError):
    """The message is older than what the inbox remembers and is not known to it."""


class StartedTooOften(EventBusError):
    """The handler was started and never came back, more often than START_LIMIT."""


class AppendOnly(EventBusError):
    """An entry of the audit was to be changed or deleted."""


class BadSelection(EventBusError, ValueError):
    """A filter of dead letters cannot be read."""


class BadPlan(EventBusError, ValueError):
    """A plan cannot be made like this, or not be changed so in its state."""


class NothingToDo(BadPlan):
    """Nothing is among the selected dead letters that the plan could be about."""


class BadEdit(EventBusError, ValueError):
    """An edited message cannot be sent; *problems* has a sentence for each reason."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class UnknownQueue(EventBusError):
    """A command was given a queue that is not this project's."""


class BrokerRefused(EventBusError):
    """The broker answers and says no; asking again cannot help."""


class Unavailable(EventBusError):
    """A server we need does not answer: an outage, not a failed attempt."""

    #: What is the matter, in one word; outages are counted by it.
    kind = "unknown"


class BrokerUnavailable(Unavailable):
    """
    The broker does not answer or did not confirm in time.

    Its kind: connection (cannot be made, or was lost), channel (closed by the broker), io (no
    answer in time), setup (a queue could not be declared), blocked (the broker's alarm), or
    refused (it answers, and does not take messages for some place now).
    """

    def __init__(self, words: str, kind: str = "connection") -> None:
        super().__init__(words)
        self.kind = kind


class DatabaseUnavailable(Unavailable):
    """A fresh database connection fails as well."""

    kind = "database"


class Verdict(EventBusError):
    """Raised by a handler to choose its outcome. Do not raise directly."""


class RetryLater(Verdict):
    """Try again, after *after* if given, else after the next delay of the subscription."""

    def __init__(self, reason: str = "", *, after: Duration | None = None) -> None:
        super().__init__(reason or "the handler asked to be tried again later")
        self.after = None if after is None else seconds(after)


class GiveUp(Verdict):
    """Park the message now: trying again cannot help."""

    def __init__(self, reason: str = "the handler gave up") -> None:
        super().__init__(reason)


class Skip(Verdict):
    """Settle the message without an effect and without a failure."""

    def __init__(self, reason: str = "the handler skipped it") -> None:
        super().__init__(reason)


class TooEarly(Verdict):
    """Come back at *until*; no attempt is counted."""

    def __init__(self, reason: str = "", *, until: datetime) -> None:
        super().__init__(reason or f"too early before {until.isoformat()}")
        if until.tzinfo is None:
            raise ValueError("TooEarly(until=…) needs an aware datetime")
        self.until = until
