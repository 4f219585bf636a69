"""Hide the parts of payloads and headers that rules name. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django_eventbus.events.text import DEPTH_LIMIT

HIDDEN = "[redacted]"
Rule = tuple[str, ...]


def redacted(value: Any, root: str, rules: Iterable[str]) -> Any:
    """
    Return *value*, the "payload" or the "headers", with the parts that *rules* name hidden.

    A rule is a key at any level, or a path from the root, such as "payload.card.number".
    """
    return _redact(value, (root,), _parse_rules(rules))


def is_hidden(path: Iterable[str], root: str, rules: Iterable[str]) -> bool:
    """Whether *rules* hide the value at *path* or one of its parents."""
    steps = (root, *path)
    forms = _parse_rules(rules)
    is_too_deep = bool(forms) and len(steps) > DEPTH_LIMIT
    return is_too_deep or any(_names_part_of(form, steps) for form in forms)


def _redact(value: Any, path: Rule, rules: frozenset[Rule], depth: int = 1) -> Any:
    # Too deep to check the rules in bounded time, so hide it.
    if depth > DEPTH_LIMIT:
        return HIDDEN
    if isinstance(value, Mapping):
        items = ((key, each, (*path, _step(key))) for key, each in value.items())
        return {key: _redact_item(each, item_path, rules, depth) for key, each, item_path in items}
    if isinstance(value, list | tuple):
        return [_redact(each, path, rules, depth + 1) for each in value]
    return value


def _redact_item(value: Any, path: Rule, rules: frozenset[Rule], depth: int) -> Any:
    is_named = any(_names(rule, path) for rule in rules)
    return HIDDEN if is_named else _redact(value, path, rules, depth + 1)


def _names(rule: Rule, path: Rule) -> bool:
    if len(rule) == 1:
        return rule[0] == path[-1]
    return len(rule) == len(path) and all(map(_matches, rule, path))


def _names_part_of(rule: Rule, path: Rule) -> bool:
    """Whether *rule* matches *path* or its start. A number in the path may be a list index."""
    if len(rule) == 1:
        return rule[0] in map(_step, path[1:])
    reached = {0}
    for step in path:
        onward = {at + 1 for at in reached if _matches(rule[at], _step(step))}
        reached = onward | reached if _is_number(step) else onward
        if len(rule) in reached:
            return True
    return False


def _matches(wanted: str, step: str) -> bool:
    return wanted in ("*", step)


def _is_number(step: str) -> bool:
    try:
        int(step)
    except ValueError:
        return False
    return True


def _parse_rules(rules: Iterable[str]) -> frozenset[Rule]:
    return frozenset(form for rule in rules for form in _rule_variants(_steps(rule)))


def _rule_variants(rule: Rule) -> Iterator[Rule]:
    yield rule
    # An envelope has the payload inside the body, and so does a structured CloudEvent.
    if len(rule) > 1 and _matches(rule[0], "payload"):
        yield from (("payload", name, *rule[1:]) for name in ("payload", "data"))


def _steps(rule: str) -> Rule:
    return tuple(_step(step) for step in rule.split("."))


def _step(key: object) -> str:
    return str(key).lower().replace("-", "_")
