"""What an examination finds: how bad, what it is, and what to do about it. Values."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, or that could not be looked at."""

    #: An error loses messages or keeps them from arriving.
    severity: Literal["error", "warning", "unchecked"]
    what: str
    remedy: str

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


def error(what: str, remedy: str) -> Finding:
    return Finding(severity="error", what=what, remedy=remedy)


def warning(what: str, remedy: str) -> Finding:
    return Finding(severity="warning", what=what, remedy=remedy)


def unchecked(what: str, remedy: str) -> Finding:
    return Finding(severity="unchecked", what=what, remedy=remedy)
