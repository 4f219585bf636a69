"""JSON merge patches, RFC 7396. Pure."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _

from django_eventbus.exceptions import BadPlan
from django_eventbus.messages import storable_json


def merged(target: Any, patch: Any) -> Any:
    """Return *target* as *patch* says: objects are merged, null removes, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def require_storable(patch: Any) -> None:
    """Raise BadPlan if there is something in *patch* that a plan cannot keep."""
    if storable_json(patch) != patch:
        words = _(
            "This patch cannot be stored: it has a NUL, a lone surrogate, "
            "a number that is too large, or too many levels."
        )
        raise BadPlan(words)
