"""
Every error of the package, as one tree.

EventBusError
├── BadSetting              a key of EVENTBUS is wrong
├── InvalidEvent            publish() refused the event and wrote nothing
├── NoTransaction           publish() ran outside a transaction and REQUIRE_TRANSACTION is on
├── Unreadable              a message cannot be passed to any handler
│   ├── Undecodable         its body, id or headers cannot be decoded
│   ├── InvalidPayload      its payload does not match the event's fields
│   ├── UnknownVersion      its version is newer than the event class
│   └── Unmatched           no subscription on its queue matches it
├── NotCommitted            a handler returned, but its transaction did not commit
├── HandlerTimeout          a handler exceeded its timeout and was rolled back
├── ForwardFailed           an HTTP endpoint did not accept an event
├── Busy                    another worker is handling the same message
├── TooOld                  a message is older than the records of the inbox
├── StartedTooOften         a handler was started too often without finishing
├── KeyHeld                 an earlier event with the same key is parked
├── AppendOnly              code tried to change an entry of the audit
├── BadSelection            a filter of dead letters is not valid
├── BadPlan                 a plan cannot be created or changed like this
│   └── NothingToDo         no selected dead letter can be changed
├── BadEdit                 an edited message cannot be sent
├── UnknownQueue            a command was given a queue that is not this project's
├── BrokerRefused           the broker refused a request, such as a login
├── Unavailable             an outage, never a failed attempt
│   ├── BrokerUnavailable
│   ├── DatabaseUnavailable
│   └── RecordingFailed     the outcome of a message cannot be recorded
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
    """The base class of all errors. Do not raise directly."""


class BadSetting(EventBusError, ImproperlyConfigured):
    """A key of the EVENTBUS setting is missing, unknown or of the wrong type."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"EVENTBUS[{key!r}]: {problem}")
        self.key = key


class InvalidEvent(EventBusError, ValueError):
    """The event cannot be published; nothing was written."""


class NoTransaction(EventBusError):
    """REQUIRE_TRANSACTION is on and publish() was called outside a transaction."""


class KeyHeld(EventBusError):
    """An earlier event with the same key is parked, and the subscription holds keys."""


class Unreadable(EventBusError):
    """The message cannot be passed to any handler. Do not raise directly."""


class Undecodable(Unreadable):
    """The body, the id or the headers of the message cannot be decoded."""


class InvalidPayload(Unreadable):
    """The payload does not match the fields of the event class."""


class UnknownVersion(Unreadable):
    """The message has a newer version than the event class of this process."""


class Unmatched(Unreadable):
    """No subscription on the queue matches the message."""


class NotCommitted(EventBusError):
    """The handler returned, but its transaction did not commit."""


class HandlerTimeout(EventBusError):
    """The handler exceeded its timeout; its transaction was rolled back."""


class ForwardFailed(EventBusError):
    """The endpoint did not accept the event. Its HTTP status decides the outcome."""

    def __init__(self, words: str, status_code: int | None = None, retry_after: str = "") -> None:
        super().__init__(words)
        self.status_code = status_code
        self.retry_after = retry_after


class Busy(EventBusError):
    """Another worker is handling the same message."""


class TooOld(EventBusError):
    """The message is older than the records of the inbox and has no record."""


class StartedTooOften(EventBusError):
    """The handler was started more often than START_LIMIT without finishing."""


class AppendOnly(EventBusError):
    """Code tried to change or delete an entry of the audit."""


class BadSelection(EventBusError, ValueError):
    """A filter of dead letters is not valid."""


class BadPlan(EventBusError, ValueError):
    """A plan cannot be created like this, or not be changed like this in its state."""


class NothingToDo(BadPlan):
    """The plan cannot change any of the selected dead letters."""


class BadEdit(EventBusError, ValueError):
    """An edited message cannot be sent; *problems* has a sentence for each reason."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class UnknownQueue(EventBusError):
    """A command was given a queue that is not this project's."""


class BrokerRefused(EventBusError):
    """The broker refused a request; a second request cannot succeed."""


class Unavailable(EventBusError):
    """A server does not answer: an outage, not a failed attempt."""

    #: The kind of the outage: a label of metrics and a column of Outage.
    kind = "unknown"
    #: What failed. The outage lasts until the same operation has succeeded.
    operation = ""
    #: Whether a new connection failed too, so that a new connection proves the end of the outage.
    is_proven = False


class BrokerUnavailable(Unavailable):
    """
    The broker does not answer or did not confirm in time.

    Its kind is connection (failed or lost), channel (closed by the broker), io (no answer in
    time), setup (a queue could not be declared), blocked (the broker has raised an alarm), or
    refused (the broker answers, but does not accept messages for a queue or an exchange now).
    """

    def __init__(self, words: str, kind: str = "connection") -> None:
        super().__init__(words)
        self.kind = kind


class DatabaseUnavailable(Unavailable):
    """The database does not answer; a new connection fails too."""

    kind = "database"

    def __init__(self, words: str, *, operation: str = "", is_proven: bool = False) -> None:
        super().__init__(words)
        self.operation = operation
        self.is_proven = is_proven


class RecordingFailed(Unavailable):
    """
    The outcome of a message cannot be recorded, and the message is not the reason.

    For example a column is missing, the database is read-only, or its disk is full.
    """

    kind = "recording"

    def __init__(self, place: str, *, operation: str) -> None:
        super().__init__(f"The outcome of a message cannot be recorded: {place}.")
        self.operation = operation


class Verdict(EventBusError):
    """Raised by a handler to choose its outcome. Do not raise directly."""


class RetryLater(Verdict):
    """Retry the message after *after*, or after the next delay of the subscription."""

    def __init__(self, reason: str = "", *, after: Duration | None = None) -> None:
        super().__init__(reason or "the handler asked for a retry")
        self.after = None if after is None else seconds(after)


class GiveUp(Verdict):
    """Park the message now; a retry cannot succeed."""

    def __init__(self, reason: str = "the handler gave up") -> None:
        super().__init__(reason)


class Skip(Verdict):
    """Settle the message as skipped, which is not a failure."""

    def __init__(self, reason: str = "the handler skipped it") -> None:
        super().__init__(reason)


class TooEarly(Verdict):
    """Defer the message until *until* without counting an attempt."""

    def __init__(self, reason: str = "", *, until: datetime) -> None:
        super().__init__(reason or f"the event must not be handled before {until.isoformat()}")
        if until.tzinfo is None:
            raise ValueError("TooEarly(until=…) needs an aware datetime")
        self.until = until
