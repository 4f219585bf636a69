"""What of payloads and headers is hidden by rules. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django_eventbus.messages import DEEPEST

HIDDEN = "[redacted]"
Rule = tuple[str, ...]


def redacted(value: Any, root: str, rules: Iterable[str]) -> Any:
    """
    Return *value*, the "payload" or the "headers", with what *rules* name hidden.

    A rule is a key, wherever it stands, or a path from the root, such as "payload.card.number".
    """
    return _hidden(value, (root,), _forms(rules))


def is_hidden(path: Iterable[str], root: str, rules: Iterable[str]) -> bool:
    """Whether *rules* hide what is at *path*, or something that it is in."""
    steps = (root, *path)
    forms = _forms(rules)
    is_too_deep = bool(forms) and len(steps) > DEEPEST
    return is_too_deep or any(_leads_into(form, steps) for form in forms)


def _hidden(value: Any, path: Rule, rules: frozenset[Rule], depth: int = 1) -> Any:
    # Deeper than any rule can be checked in bounded time: hidden rather than shown unchecked.
    if depth > DEEPEST:
        return HIDDEN
    if isinstance(value, Mapping):
        places = ((key, each, (*path, _step(key))) for key, each in value.items())
        return {key: _each(each, place, rules, depth) for key, each, place in places}
    if isinstance(value, list | tuple):
        return [_hidden(each, path, rules, depth + 1) for each in value]
    return value


def _each(value: Any, path: Rule, rules: frozenset[Rule], depth: int) -> Any:
    is_named = any(_leads_to(rule, path) for rule in rules)
    return HIDDEN if is_named else _hidden(value, path, rules, depth + 1)


def _leads_to(rule: Rule, path: Rule) -> bool:
    if len(rule) == 1:
        return rule[0] == path[-1]
    return len(rule) == len(path) and all(map(_is_taken, rule, path))


def _leads_into(rule: Rule, path: Rule) -> bool:
    """Whether *rule* leads to a place on *path*, whichever of its numbers are places in lists."""
    if len(rule) == 1:
        return rule[0] in map(_step, path[1:])
    reached = {0}
    for step in path:
        onward = {at + 1 for at in reached if _is_taken(rule[at], _step(step))}
        reached = onward | reached if _is_number(step) else onward
        if len(rule) in reached:
            return True
    return False


def _is_taken(wanted: str, step: str) -> bool:
    return wanted in ("*", step)


def _is_number(step: str) -> bool:
    try:
        int(step)
    except ValueError:
        return False
    return True


def _forms(rules: Iterable[str]) -> frozenset[Rule]:
    return frozenset(form for rule in rules for form in _forms_of(_steps(rule)))


def _forms_of(rule: Rule) -> Iterator[Rule]:
    yield rule
    # An envelope has the payload inside the body, and so does a structured CloudEvent.
    if len(rule) > 1 and _is_taken(rule[0], "payload"):
        yield from (("payload", name, *rule[1:]) for name in ("payload", "data"))


def _steps(rule: str) -> Rule:
    return tuple(_step(step) for step in rule.split("."))


def _step(key: object) -> str:
    return str(key).lower().replace("-", "_")
