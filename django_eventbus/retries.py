"""Decide what a failed attempt leads to. Pure: no clock, no database, no broker."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django_eventbus.exceptions import (
    GiveUp,
    InvalidPayload,
    RetryLater,
    Skip,
    StartedTooOften,
    TooEarly,
    TooOld,
    Undecodable,
    Unmatched,
)
from django_eventbus.outcomes import Defer, Park, Retry, Skipped

Errors = tuple[type[BaseException], ...]
Decision = Retry | Defer | Park | Skipped

#: Errors that no further attempt can mend, and the kind of dead letter they make.
_HOPELESS: dict[type[BaseException], str] = {
    GiveUp: "given_up",
    Undecodable: "undecodable",
    InvalidPayload: "invalid",
    TooOld: "too_old",
    StartedTooOften: "start_limit",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How a subscription fails: its delays in seconds, its tries, its kinds of error."""

    delays: tuple[float, ...]
    tries: int
    retry_on: Errors = ()
    park_on: Errors = ()
    skip_on: Errors = ()

    def delay_after(self, attempt: int) -> float:
        """Return the wait after *attempt* failed; the last delay repeats."""
        if not self.delays:
            return 0.0
        return self.delays[min(attempt, len(self.delays)) - 1]

    def verdict_on(self, error: BaseException) -> str:
        """Return "retry", "park" or "skip": the nearest class that a list names decides."""
        for ancestor in type(error).__mro__:
            if ancestor in self.retry_on:
                return "retry"
            if ancestor in self.park_on:
                return "park"
            if ancestor in self.skip_on:
                return "skip"
        return "retry"


def decide(
    error: BaseException, attempt: int, policy: RetryPolicy, *, latest: datetime
) -> Decision:
    """Turn the *error* of *attempt* into an outcome; nothing is deferred past *latest*."""
    for hopeless, kind in _HOPELESS.items():
        if isinstance(error, hopeless):
            return Park(kind=kind, reason=describe(error))
    match error:
        case Skip():
            return Skipped(reason=words_of(error))
        case TooEarly():
            return _defer(error, latest)
        case RetryLater():
            return _retry(error, attempt, policy, after=error.after)
    return _by_policy(error, attempt, policy)


def _by_policy(error: BaseException, attempt: int, policy: RetryPolicy) -> Decision:
    match policy.verdict_on(error):
        case "park":
            return Park(kind="given_up", reason=describe(error))
        case "skip":
            return Skipped(reason=describe(error))
    return _retry(error, attempt, policy)


def describe(error: BaseException) -> str:
    """Return the error as one line: its class, then its words."""
    return f"{type(error).__name__}: {words_of(error)}".rstrip(": ")


def words_of(error: BaseException) -> str:
    """Return what the error says; an error that cannot even say it must not break us."""
    try:
        return str(error)
    except Exception:
        return "its words cannot be had: its __str__ fails"


def _retry(
    error: BaseException, attempt: int, policy: RetryPolicy, after: float | None = None
) -> Retry | Park:
    if attempt >= policy.tries:
        kind = "unmatched" if isinstance(error, Unmatched) else "failed"
        return Park(kind=kind, reason=describe(error))
    delay = policy.delay_after(attempt) if after is None else after
    return Retry(delay=delay, by_tier=delay in policy.delays or delay == 0)


def _defer(error: TooEarly, latest: datetime) -> Defer | Park:
    if error.until > latest:
        reason = f"not before {error.until.isoformat()}, which is past DEFER_LIMIT"
        return Park(kind="too_early", reason=reason)
    return Defer(until=error.until)
