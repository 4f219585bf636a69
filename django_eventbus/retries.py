"""Decide what a failed attempt leads to. Pure: no clock, no database, no broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django_eventbus.exceptions import (
    GiveUp,
    InvalidPayload,
    KeyHeld,
    RetryLater,
    Skip,
    StartedTooOften,
    TooEarly,
    TooOld,
    Undecodable,
    Unmatched,
)
from django_eventbus.outcomes import Defer, Park, Retry, Skipped
from django_eventbus.statuses import causes_of, retry_after, status_of, verdict_on

logger = logging.getLogger(__name__)

Predicate = Callable[[BaseException], bool]
Errors = tuple[type[BaseException] | Predicate, ...]
OneOrMore = type[BaseException] | Predicate | Iterable[type[BaseException] | Predicate]
Decision = Retry | Defer | Park | Skipped

#: Errors that no further attempt can mend, and the kind of dead letter they make.
_HOPELESS: dict[type[BaseException], str] = {
    GiveUp: "given_up",
    Undecodable: "undecodable",
    InvalidPayload: "invalid",
    TooOld: "too_old",
    StartedTooOften: "start_limit",
    KeyHeld: "held",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How a subscription fails: its delays in seconds, its tries, its kinds of error."""

    delays: tuple[float, ...]
    tries: int
    retry_on: Errors = ()
    park_on: Errors = ()
    skip_on: Errors = ()
    #: Seconds from the first attempt on after which nothing is tried again.
    retry_for: float | None = None
    #: Whether an HTTP status that says that the request is wrong is tried again too.
    retry_client_errors: bool = False

    def delay_after(self, attempt: int) -> float:
        """Return the wait after *attempt* failed; the last delay repeats."""
        if not self.delays:
            return 0.0
        return self.delays[min(attempt, len(self.delays)) - 1]

    def verdict_on(self, error: BaseException) -> str:
        """
        Return "retry", "park", "skip" or "defer".

        The lists come first, for the error and then for what it was raised from; then the
        HTTP status of either; else it is tried again.
        """
        for each in causes_of(error):
            if listed := self._listed(each):
                return listed
        status = status_of(error)
        if status is None:
            return "retry"
        return verdict_on(status, retry_client_errors=self.retry_client_errors)

    def _listed(self, error: BaseException) -> str:
        lists = {"retry": self.retry_on, "park": self.park_on, "skip": self.skip_on}
        for verdict, listed in lists.items():
            if any(_holds(each, error) for each in listed if not isinstance(each, type)):
                return verdict
        # The nearest class that a list names decides.
        for ancestor in type(error).__mro__:
            for verdict, listed in lists.items():
                if ancestor in listed:
                    return verdict
        return ""


def errors_of(name: str, given: OneOrMore) -> Errors:
    """Return what the option *name* of @subscribe lists, or raise TypeError."""
    if isinstance(given, Iterable) and not isinstance(given, type | str):
        listed: Errors = tuple(given)
    else:
        listed = (given,)
    for each in listed:
        is_class = isinstance(each, type) and issubclass(each, BaseException)
        if not is_class and (isinstance(each, type) or not callable(each)):
            raise TypeError(
                f"{name}={given!r:.100} is no list of exception classes, nor of functions that "
                "take an error and return whether it is meant"
            )
    return listed


def _holds(predicate: Predicate, error: BaseException) -> bool:
    try:
        return bool(predicate(error))
    except Exception as failure:
        # It expected another kind of error, which is no reason to settle this one.
        name = getattr(predicate, "__qualname__", type(predicate).__name__)
        kind = type(failure).__name__
        logger.warning("%s, which sorts errors, raised %s: taken for a no.", name, kind)
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When a decision is made: now, since when the message is tried, how far it may be put off."""

    now: datetime
    since: datetime
    latest: datetime


def decide(error: BaseException, attempt: int, policy: RetryPolicy, when: Moment) -> Decision:
    """Turn the *error* of *attempt* into an outcome."""
    for hopeless, kind in _HOPELESS.items():
        if isinstance(error, hopeless):
            return Park(kind=kind, reason=describe(error))
    match error:
        case Skip():
            return Skipped(reason=words_of(error))
        case TooEarly():
            return _defer(error.until, when)
        case RetryLater():
            return _retry(error, attempt, policy, when, after=error.after)
    return _by_policy(error, attempt, policy, when)


def _by_policy(error: BaseException, attempt: int, policy: RetryPolicy, when: Moment) -> Decision:
    after = retry_after(error, when.now)
    match policy.verdict_on(error):
        case "park":
            return Park(kind="given_up", reason=describe(error))
        case "skip":
            return Skipped(reason=describe(error))
        case "defer":
            wait = policy.delay_after(1) if after is None else after
            return _defer(when.now + timedelta(seconds=wait), when)
    if after is not None:
        # A stranger's wish, which may be a year: not past what we would put off ourselves.
        after = min(after, max((when.latest - when.now).total_seconds(), 0.0))
    return _retry(error, attempt, policy, when, after=after)


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
    error: BaseException,
    attempt: int,
    policy: RetryPolicy,
    when: Moment,
    *,
    after: float | None,
) -> Retry | Park:
    delay = policy.delay_after(attempt) if after is None else after
    if attempt >= policy.tries or _is_past_budget(delay, policy, when):
        kind = "unmatched" if isinstance(error, Unmatched) else "failed"
        return Park(kind=kind, reason=describe(error))
    return Retry(delay=delay, by_tier=delay in policy.delays or delay == 0)


def _is_past_budget(delay: float, policy: RetryPolicy, when: Moment) -> bool:
    if policy.retry_for is None:
        return False
    return when.now + timedelta(seconds=delay) > when.since + timedelta(seconds=policy.retry_for)


def _defer(until: datetime, when: Moment) -> Defer | Park:
    if until > when.latest:
        reason = f"not before {until.isoformat()}, which is later than it may be put off"
        return Park(kind="too_early", reason=reason)
    return Defer(until=until)
