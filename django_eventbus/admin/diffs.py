"""Diffs of JSON, line by line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any

from django_eventbus.admin.excerpts import visible
from django_eventbus.admin.json_fields import written


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffLine:
    """A line of a diff: "added", "removed", "place" or the same."""

    kind: str
    text: str


def diff_of_json(old: Any, new: Any) -> list[DiffLine]:
    """Return what is different between two values, line by line."""
    sides = written(old).splitlines(), written(new).splitlines()
    return list(_lines(unified_diff(*sides, lineterm="", n=3)))


def _lines(diff: Iterator[str]) -> Iterator[DiffLine]:
    kinds = {"+": "added", "-": "removed", "@": "place"}
    for number, line in enumerate(diff):
        # The first two name files.
        if number > 1:
            yield DiffLine(kind=kinds.get(line[:1], "same"), text=visible(line))
