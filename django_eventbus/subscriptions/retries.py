"""Decide the outcome of a failed attempt. Pure."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

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
from django_eventbus.subscriptions.outcomes import Defer, Park, Retry, Skipped

_CONFLICT, _TOO_EARLY, _TOO_MANY = 409, 425, 429
_SUCCESS, _REDIRECT, _CLIENT, _SERVER, _END = 200, 300, 400, 500, 600

logger = logging.getLogger("django_eventbus.subscriptions")
Predicate = Callable[[BaseException], bool]
Errors = tuple[type[BaseException] | Predicate, ...]
OneOrMore = type[BaseException] | Predicate | Iterable[type[BaseException] | Predicate]
Decision = Retry | Defer | Park | Skipped
#: Errors that a retry cannot fix, with the kind of their dead letters.
_HOPELESS: dict[type[BaseException], str] = {
    GiveUp: "given_up",
    Undecodable: "undecodable",
    InvalidPayload: "invalid",
    TooOld: "too_old",
    StartedTooOften: "start_limit",
    KeyHeld: "held",
}


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield *error* and then its chain of causes."""
    seen: list[BaseException] = []
    found: BaseException | None = error
    while found is not None and found not in seen:
        yield found
        seen.append(found)
        found = found.__cause__


def status_of(error: BaseException) -> int | None:
    """Return the first HTTP status that *error* or one of its causes has as status_code."""
    for each in causes_of(error):
        status = getattr(each, "status_code", None)
        if isinstance(status, int) and _SUCCESS <= status < _END:
            return int(status)
    return None


def verdict_on(status: int, *, retry_client_errors: bool) -> str:
    """Return "retry", "defer" or "park" for the status of an error."""
    if status == _TOO_EARLY:
        return "defer"
    if status in (_CONFLICT, _TOO_MANY) or status >= _SERVER:
        return "retry"
    if _CLIENT <= status < _SERVER and retry_client_errors:
        return "retry"
    return "park" if status >= _REDIRECT else "retry"


def retry_after(error: BaseException, now: datetime) -> float | None:
    """Return the seconds in retry_after or in a Retry-After header of *error*, if any."""
    for each in causes_of(error):
        for given in (getattr(each, "retry_after", None), _header(each)):
            wait = _seconds(given, now)
            if wait is not None:
                return wait
    return None


def _header(error: BaseException) -> Any:
    holder = getattr(error, "response", None) or error
    headers = getattr(holder, "headers", None)
    get = getattr(headers, "get", None)
    return get("Retry-After") if callable(get) else None


def _seconds(given: Any, now: datetime) -> float | None:
    match given:
        case bool():
            return None
        case timedelta():
            return max(given.total_seconds(), 0.0)
        case int() | float():
            return float(given) if math.isfinite(given) and given >= 0 else None
        case datetime():
            return _until(given, now)
        case str():
            return _parsed(given.strip(), now)
    return None


def _parsed(text: str, now: datetime) -> float | None:
    if text.isascii() and text.isdigit() and len(text) < 10:
        return float(text)
    try:
        return _until(parsedate_to_datetime(text), now)
    except ValueError:
        return None


def _until(at: datetime, now: datetime) -> float:
    aware = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max((aware - now).total_seconds(), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The delays in seconds, the tries and the lists of errors of a subscription."""

    delays: tuple[float, ...]
    tries: int
    retry_on: Errors = ()
    park_on: Errors = ()
    skip_on: Errors = ()
    #: Seconds after the first attempt during which the message is retried.
    retry_for: float | None = None
    #: Whether errors with an HTTP status from 400 to 499 are retried too.
    retry_client_errors: bool = False

    def delay_after(self, attempt: int) -> float:
        """Return the wait after *attempt* failed; the last delay repeats."""
        if not self.delays:
            return 0.0
        return self.delays[min(attempt, len(self.delays)) - 1]

    def verdict_on(self, error: BaseException) -> str:
        """
        Return "retry", "park", "skip" or "defer".

        The lists decide first, for the error and then for its causes; then the HTTP status of
        either. Any other error is retried.
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
        # The nearest class in one of the lists decides.
        for ancestor in type(error).__mro__:
            for verdict, listed in lists.items():
                if ancestor in listed:
                    return verdict
        return ""


def errors_of(name: str, given: OneOrMore) -> Errors:
    """Return the errors in the option *name* of @subscribe, or raise TypeError."""
    if isinstance(given, Iterable) and not isinstance(given, type | str):
        listed: Errors = tuple(given)
    else:
        listed = (given,)
    for each in listed:
        is_class = isinstance(each, type) and issubclass(each, BaseException)
        if not is_class and (isinstance(each, type) or not callable(each)):
            raise TypeError(
                f"{name}={given!r:.100} is not a list of exception classes or of functions that "
                "accept an error and return a bool"
            )
    return listed


def _holds(predicate: Predicate, error: BaseException) -> bool:
    try:
        return bool(predicate(error))
    except Exception as failure:
        # The function may expect another kind of error.
        name = getattr(predicate, "__qualname__", type(predicate).__name__)
        kind = type(failure).__name__
        logger.warning("%s raised %s and does not match the error.", name, kind)
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionTime:
    """The time of the decision, of the first attempt, and of the latest deferral."""

    now: datetime
    since: datetime
    latest: datetime


def decide(error: BaseException, attempt: int, policy: RetryPolicy, when: DecisionTime) -> Decision:
    """Turn the *error* of *attempt* into an outcome."""
    for hopeless, kind in _HOPELESS.items():
        if isinstance(error, hopeless):
            return Park(kind=kind, reason=describe(error))
    match error:
        case Skip():
            return Skipped(reason=error_text(error))
        case TooEarly():
            return _defer(error.until, when)
        case RetryLater():
            return _retry(error, attempt, policy, when, after=error.after)
    return _by_policy(error, attempt, policy, when)


def _by_policy(
    error: BaseException, attempt: int, policy: RetryPolicy, when: DecisionTime
) -> Decision:
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
        # Another server chose the time, so it is limited to the latest deferral.
        after = min(after, max((when.latest - when.now).total_seconds(), 0.0))
    return _retry(error, attempt, policy, when, after=after)


def describe(error: BaseException) -> str:
    """Return the class and the text of the error."""
    return f"{type(error).__name__}: {error_text(error)}".rstrip(": ")


def error_text(error: BaseException) -> str:
    """Return the text of the error, also if its __str__ fails."""
    try:
        return str(error)
    except Exception:
        return "its text is not available: its __str__ fails"


def _retry(
    error: BaseException,
    attempt: int,
    policy: RetryPolicy,
    when: DecisionTime,
    *,
    after: float | None,
) -> Retry | Park:
    delay = policy.delay_after(attempt) if after is None else after
    if attempt >= policy.tries or _is_past_budget(delay, policy, when):
        kind = "unmatched" if isinstance(error, Unmatched) else "failed"
        return Park(kind=kind, reason=describe(error))
    return Retry(delay=delay, by_tier=delay in policy.delays or delay == 0)


def _is_past_budget(delay: float, policy: RetryPolicy, when: DecisionTime) -> bool:
    if policy.retry_for is None:
        return False
    return when.now + timedelta(seconds=delay) > when.since + timedelta(seconds=policy.retry_for)


def _defer(until: datetime, when: DecisionTime) -> Defer | Park:
    if until > when.latest:
        reason = f"the event cannot be deferred until {until.isoformat()}, which is too late"
        return Park(kind="too_early", reason=reason)
    return Defer(until=until)
