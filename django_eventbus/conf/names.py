"""Templates for the names of exchanges, queues and routing keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from string import Formatter

_BUS = ("namespace", "service")
_OF_TYPE = (*_BUS, "type", "version")
_OF_PATTERN = (*_BUS, "pattern", "key")
_OF_QUEUE = (*_BUS, "queue", "name")
_OF_TIER = (*_OF_QUEUE, "delay")

EXCHANGE_TYPES: dict[str, str] = {
    "events": "topic",
    "commands": "topic",
    "retry": "direct",
    "dead_letter": "fanout",
}
_KINDS = ("topic", "fanout", "direct")
#: In a word with anything else, no pattern could be bound for it.
_TYPE_IN_WORDS = re.compile(r"(.*\.)?\{type\}(\..*)?|((?!\{type\}).)*")


@dataclass(frozen=True, slots=True)
class Template:
    """The default of a name in NAMES, and the placeholders that it may contain."""

    default: str
    placeholders: tuple[str, ...]
    #: "" means the default exchange of RabbitMQ, or a key that is not used.
    may_be_empty: bool = False


TEMPLATES: dict[str, Template] = {
    "events_exchange": Template("{namespace}.events", _BUS),
    "commands_exchange": Template("{namespace}.commands", _BUS),
    "main_queue": Template("{namespace}.{service}", _BUS),
    "queue": Template("{namespace}.{service}.{name}", (*_BUS, "name")),
    "routing_key": Template("{type}", _OF_TYPE, may_be_empty=True),
    "binding_key": Template("{key}", _OF_PATTERN, may_be_empty=True),
    "command_routing_key": Template("commands.{type}", _OF_TYPE, may_be_empty=True),
    "command_binding_key": Template("{key}", _OF_PATTERN, may_be_empty=True),
    "retry_exchange": Template("{queue}.retry", _OF_QUEUE, may_be_empty=True),
    "tier": Template("{queue}.retry.{delay}", _OF_TIER),
    "tier_key": Template("{delay}", (*_OF_TIER, "tier")),
    "tier_return_exchange": Template("", _OF_TIER, may_be_empty=True),
    "tier_return_key": Template("{queue}", _OF_TIER),
    "dead_letter_exchange": Template("{queue}.dlq", _OF_QUEUE, may_be_empty=True),
    "dead_letter_queue": Template("{queue}.dlq", _OF_QUEUE),
    "dead_letter_key": Template("", (*_OF_QUEUE, "dead_letter_queue"), may_be_empty=True),
}


def names(value: object) -> dict[str, str]:
    """Accept some of the templates; return all, with defaults for the others."""
    given = _strings(value, TEMPLATES)
    for key, template in given.items():
        _check(key, template)
    return {key: each.default for key, each in TEMPLATES.items()} | given


def exchange_types(value: object) -> dict[str, str]:
    """Accept some types of exchanges; return all, with defaults for the others."""
    given = _strings(value, EXCHANGE_TYPES)
    for key, kind in given.items():
        if kind not in _KINDS:
            raise ValueError(f"{key!r} is {kind!r:.100}, which is not one of {', '.join(_KINDS)}")
    return EXCHANGE_TYPES | given


def routes(value: object) -> dict[str, str]:
    """Accept exchanges, as templates, by the pattern of the event types that go there."""
    if not isinstance(value, Mapping):
        raise TypeError(
            "is not a dict of exchanges by pattern. Example: {'command.#': '{namespace}.commands'}"
        )
    for pattern, template in value.items():
        if not isinstance(pattern, str) or not isinstance(template, str) or not template:
            raise TypeError(f"{pattern!r:.100} is not a pattern with the name of an exchange")
        _raise_if_unknown(f"the exchange of {pattern!r:.100}", template, _BUS)
    return dict(value)


def _strings(value: object, known: Mapping[str, object]) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise TypeError(f"is not a dict with the keys {', '.join(known)}")
    for key, text in value.items():
        if key not in known:
            guess = get_close_matches(str(key), known, 1)
            hint = f"did you mean {guess[0]!r}" if guess else f"the keys are {', '.join(known)}"
            raise ValueError(f"has no key {key!r:.100}; {hint}")
        if not isinstance(text, str):
            raise TypeError(f"{key!r} is not text")
    return dict(value)


@lru_cache(maxsize=256)
def _check(key: str, template: str) -> None:
    _raise_if_unknown(repr(key), template, TEMPLATES[key].placeholders)
    if not template and not TEMPLATES[key].may_be_empty:
        raise ValueError(f"{key!r} is empty")
    if "type" in TEMPLATES[key].placeholders and not _TYPE_IN_WORDS.fullmatch(template):
        raise ValueError(
            f"{key!r} is {template!r:.100}; {{type}} must be a whole word between dots"
        )


def _raise_if_unknown(what: str, template: str, allowed: tuple[str, ...]) -> None:
    for placeholder in placeholders(template):
        if placeholder not in allowed:
            known = ", ".join(f"{{{each}}}" for each in allowed)
            raise ValueError(f"{what} contains {{{placeholder}}}, but only {known} are allowed")


@lru_cache(maxsize=256)
def placeholders(template: str) -> tuple[str, ...]:
    """Return what stands in braces; raise ValueError if anything but a plain name does."""
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"{template!r:.100} is not a valid template: {error}") from None
    for _, field, form, conversion in parts:
        if form or conversion:
            raise ValueError(
                f"{template!r:.100} has a format or a conversion in {{{field}}}; use a plain name"
            )
    return tuple(field for _, field, _, _ in parts if field is not None)
