"""JSON merge patches, RFC 7396. Pure."""

from __future__ import annotations

from typing import Any


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
