"""How topic patterns match. Pure."""

from __future__ import annotations

from functools import lru_cache
from itertools import product

Words = tuple[str, ...]
Place = tuple[int, int]


def matches(pattern: str, key: str) -> bool:
    """Whether a RabbitMQ topic exchange would route *key* through a binding of *pattern*."""
    return _matches(_words(pattern), _words(key))


def overlap(one: str, other: str) -> bool:
    """Whether there is a key that both patterns match."""
    return _overlap(_words(one), _words(other))


def _words(topic: str) -> Words:
    # RabbitMQ: the empty key has no words, but "a." has two.
    return tuple(topic.split(".")) if topic else ()


@lru_cache(maxsize=4096)
def _matches(pattern: Words, words: Words) -> bool:
    reached = _past_hashes(pattern, {0})
    for word in words:
        stepped = {
            place if pattern[place] == "#" else place + 1
            for place in reached
            if place < len(pattern) and pattern[place] in ("#", "*", word)
        }
        reached = _past_hashes(pattern, stepped)
    return len(pattern) in reached


def _past_hashes(pattern: Words, places: set[int]) -> set[int]:
    reached = set(places)
    for place in sorted(places):
        while place < len(pattern) and pattern[place] == "#":
            place += 1
            reached.add(place)
    return reached


@lru_cache(maxsize=4096)
def _overlap(one: Words, other: Words) -> bool:
    """Walk both patterns along every word that either could take."""
    reached: set[Place] = set()
    ahead: set[Place] = {(0, 0)}
    while ahead:
        starts = {
            pair
            for here, there in ahead
            for pair in product(_past_hashes(one, {here}), _past_hashes(other, {there}))
        }
        reached |= starts
        ahead = {step for pair in starts for step in _step(one, other, pair)} - reached
    return (len(one), len(other)) in reached


def _step(one: Words, other: Words, pair: Place) -> list[Place]:
    here, there = pair
    if here == len(one) or there == len(other):
        return []
    mine, theirs = one[here], other[there]
    if mine != theirs and not {mine, theirs} & {"*", "#"}:
        return []
    return [(here + (mine != "#"), there + (theirs != "#"))]
