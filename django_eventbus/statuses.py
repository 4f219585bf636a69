"""What an error says by an HTTP status and a Retry-After. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

_CONFLICT, _TOO_EARLY, _TOO_MANY = 409, 425, 429
_SUCCESS, _REDIRECT, _CLIENT, _SERVER, _END = 200, 300, 400, 500, 600


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield *error*, then what it was raised from, and so on."""
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
    """Return the seconds that *error* asks to wait: by retry_after, or by a Retry-After header."""
    for each in causes_of(error):
        for told in (getattr(each, "retry_after", None), _header(each)):
            wait = _seconds(told, now)
            if wait is not None:
                return wait
    return None


def _header(error: BaseException) -> Any:
    holder = getattr(error, "response", None) or error
    headers = getattr(holder, "headers", None)
    get = getattr(headers, "get", None)
    return get("Retry-After") if callable(get) else None


def _seconds(told: Any, now: datetime) -> float | None:
    match told:
        case bool():
            return None
        case timedelta():
            return max(told.total_seconds(), 0.0)
        case int() | float():
            return float(told) if math.isfinite(told) and told >= 0 else None
        case datetime():
            return _until(told, now)
        case str():
            return _parsed(told.strip(), now)
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
