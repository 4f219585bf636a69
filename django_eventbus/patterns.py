"""How topic patterns match. Pure."""

from __future__ import annotations

from functools import lru_cache


def matches(pattern: str, key: str) -> bool:
    """Whether a RabbitMQ topic exchange would route *key* through a binding of *pattern*."""
    return _matches(_words(pattern), _words(key))


def _words(topic: str) -> tuple[str, ...]:
    # RabbitMQ: the empty key has no words, but "a." has two.
    return tuple(topic.split(".")) if topic else ()


@lru_cache(maxsize=4096)
def _matches(pattern: tuple[str, ...], words: tuple[str, ...]) -> bool:
    reached = _past_hashes(pattern, {0})
    for word in words:
        stepped = {
            place if pattern[place] == "#" else place + 1
            for place in reached
            if place < len(pattern) and pattern[place] in ("#", "*", word)
        }
        reached = _past_hashes(pattern, stepped)
    return len(pattern) in reached


def _past_hashes(pattern: tuple[str, ...], places: set[int]) -> set[int]:
    reached = set(places)
    for place in sorted(places):
        while place < len(pattern) and pattern[place] == "#":
            place += 1
            reached.add(place)
    return reached
