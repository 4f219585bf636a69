"""What of payloads and headers is hidden by rules. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django_eventbus.messages import DEEPEST

HIDDEN = "[redacted]"
Rule = tuple[str, ...]


def redacted(value: Any, root: str, rules: Iterable[str]) -> Any:
    """
    Return *value*, the "payload" or the "headers", with what *rules* name hidden.

    A rule is a key, wherever it stands, or a path from the root, such as "payload.card.number".
    """
    return _hidden(value, (root,), frozenset(_steps(rule) for rule in rules))


def is_hidden(path: Iterable[str], root: str, rules: Iterable[str]) -> bool:
    """Whether *rules* hide what is at *path*, or something that it is in."""
    value: Any = None
    for step in reversed(tuple(path)):
        value = {step: value}
    return bool(redacted(value, root, rules) != value)


def _hidden(value: Any, path: Rule, rules: frozenset[Rule]) -> Any:
    # Deeper than any rule can be checked in bounded time: hidden rather than shown unchecked.
    if len(path) > DEEPEST:
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: _each(each, (*path, _step(key)), rules) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden(each, path, rules) for each in value]
    return value


def _each(value: Any, path: Rule, rules: frozenset[Rule]) -> Any:
    return HIDDEN if any(_names(rule, path) for rule in rules) else _hidden(value, path, rules)


def _names(rule: Rule, path: Rule) -> bool:
    if len(rule) == 1:
        return rule[0] == path[-1]
    # An envelope has the payload inside the body, and so does a structured CloudEvent.
    is_wrapped = len(path) > 2 and path[0] == "payload" and path[1] in ("payload", "data")
    return _leads_to(rule, path) or (is_wrapped and _leads_to(rule, ("payload", *path[2:])))


def _leads_to(rule: Rule, path: Rule) -> bool:
    return len(rule) == len(path) and all(
        wanted in ("*", step) for wanted, step in zip(rule, path, strict=True)
    )


def _steps(rule: str) -> Rule:
    return tuple(_step(step) for step in rule.split("."))


def _step(key: object) -> str:
    return str(key).lower().replace("-", "_")
