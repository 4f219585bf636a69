"""Encode a payload as JSON, and name the field that cannot be encoded."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
from django.utils.functional import Promise

from django_eventbus.events.text import DEPTH_LIMIT, Sentence, is_unicode
from django_eventbus.events.text import gettext_noop as _
from django_eventbus.exceptions import InvalidEvent

_TOO_LARGE = _(
    "payload has %(size)s bytes as JSON; MAX_BODY_BYTES is %(limit)s. "
    "Publish a reference to the data instead."
)
_TOO_DEEP = _("%(path)s is nested too deeply")
_DEEPER = _("%(path)s… is nested deeper than %(levels)s levels")
_NOT_FINITE = _("%(path)s is %(value)s, which JSON cannot represent")
_SURROGATE = _("%(path)s contains a lone surrogate, which UTF-8 cannot encode")
_KEY_SURROGATE = _("%(path)s, a key, contains a lone surrogate, which UTF-8 cannot encode")
_KEY_NO_TEXT = _("%(path)s has the key %(key)s, which is not text")
_NOT_JSON = _("%(path)s cannot be sent as JSON: %(error)s")
_NOT_ENCODED = (TypeError, NotImplementedError, ValueError, RecursionError)


def body_of(payload: Any, limit: int) -> bytes:
    """Encode *payload* as JSON, or raise InvalidEvent, which names the field."""
    try:
        body = msgspec.json.encode(_checked(_builtins(payload), "payload"))
    except InvalidEvent:
        raise
    except _NOT_ENCODED as error:
        raise InvalidEvent(_culprit(payload, "payload", error)) from None
    if len(body) > limit:
        raise InvalidEvent(Sentence(_TOO_LARGE, size=len(body), limit=limit))
    return body


def payload_of_body(body: bytes) -> Any:
    """Decode a body that body_of() made."""
    return msgspec.json.decode(body)


def _builtins(payload: Any) -> Any:
    return msgspec.to_builtins(payload, builtin_types=(Decimal,), enc_hook=_plain)


def _plain(value: Any) -> Any:
    match value:
        case Promise():
            return str(value)
        # Not str(value): for a subclass such as SafeString, it returns the subclass again.
        case str():
            return str.__str__(value)
        case int():
            return int.__int__(value)
        case float():
            return float.__float__(value)
        case Mapping():
            return dict(value)
    raise TypeError(f"{type(value).__name__} is not a JSON type")


def _checked(value: Any, path: str, depth: int = 0) -> Any:
    if depth > DEPTH_LIMIT:
        raise InvalidEvent(Sentence(_DEEPER, path=path[:80], levels=DEPTH_LIMIT))
    if isinstance(value, dict):
        return {_key(k, path): _checked(v, f"{path}.{k}", depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_checked(v, f"{path}[{i}]", depth + 1) for i, v in enumerate(value)]
    if problem := _problem_with(value):
        raise InvalidEvent(Sentence(problem, path=path, value=value))
    return value


def _key(key: Any, path: str) -> Any:
    if not isinstance(key, str | int | UUID) or isinstance(key, bool):
        raise InvalidEvent(Sentence(_KEY_NO_TEXT, path=path, key=repr(key)))
    if _problem_with(key):
        raise InvalidEvent(Sentence(_KEY_SURROGATE, path=path))
    return key


def _problem_with(scalar: Any) -> str:
    if isinstance(scalar, float) and not math.isfinite(scalar):
        return _NOT_FINITE
    # Not math.isfinite(): it overflows for a large decimal, which is valid as JSON text.
    if isinstance(scalar, Decimal) and not scalar.is_finite():
        return _NOT_FINITE
    if isinstance(scalar, str) and not is_unicode(scalar):
        return _SURROGATE
    return ""


def _culprit(value: Any, path: str, error: Exception, depth: int = 0) -> str:
    """Return the path of the innermost part of *value* that cannot be encoded, and why."""
    if isinstance(error, RecursionError) or depth > DEPTH_LIMIT:
        return Sentence(_TOO_DEEP, path=path[:80])
    for name, part in _parts(value):
        try:
            msgspec.json.encode(_builtins(part))
        except _NOT_ENCODED as cause:
            return _culprit(part, f"{path}{name}", cause, depth + 1)
    return Sentence(_NOT_JSON, path=path, error=error)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    match value:
        case Mapping():
            yield from ((f".{key}", each) for key, each in value.items())
        case list() | tuple():
            yield from ((f"[{index}]", each) for index, each in enumerate(value))
        case msgspec.Struct():
            yield from ((f".{name}", getattr(value, name)) for name in value.__struct_fields__)
        case _ if is_dataclass(value):
            yield from ((f".{each.name}", getattr(value, each.name)) for each in fields(value))
