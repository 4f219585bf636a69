"""Our topic matcher and the broker's are of one mind."""

from __future__ import annotations

import random

import pika
import pytest

from django_eventbus.events.message import uuid7
from django_eventbus.events.routing import matches

pytestmark = pytest.mark.rabbitmq

#: Few words, so that much matches; an empty one, since "a..b" and "a." are keys too.
WORDS = ("a", "b", "ab", "", "A", "ä", "-")
KNOWN = [
    ("#", ""),
    ("*", ""),
    ("#.#", ""),
    ("#", "a.b.c"),
    ("*", "a.b"),
    ("a.#", "a"),
    ("#.a", "a"),
    ("a.#.b", "a.b"),
    ("a.*.b", "a..b"),
    ("a.*", "a."),
    ("*.#", ""),
    ("#.*", "a"),
    ("#.*.#.*", "a"),
    ("#.*.#.*", "a.b"),
    ("a*", "ab"),
    ("a#", "a"),
    ("*.*", "."),
]


def generated(chance: random.Random, words: tuple[str, ...]) -> str:
    return ".".join(chance.choices(words, k=chance.randint(1, 5)))


def accepted(chance: random.Random, words: tuple[str, ...]) -> str:
    """Return a pattern that every version accepts: see eventbus.E018."""
    while (pattern := generated(chance, words)).split(".").count("#") > 2:
        pass
    return pattern


def distinct(number: int, make) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < number:
        found[make()] = None
    return list(found)


def test_the_matcher_agrees_with_the_broker_on_generated_patterns_and_keys(rabbitmq_url):
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    words = (*WORDS[:4], "*", "*", "#", "#")
    patterns = distinct(200, lambda: accepted(chance, words) or "#")
    keys = distinct(150, lambda: generated(chance, WORDS))
    patterns += [pattern for pattern, _ in KNOWN if pattern not in patterns]
    keys += [key for _, key in KNOWN if key not in keys]

    routed = routed_by_the_broker(rabbitmq_url, patterns, keys)

    ours = {(pattern, key) for pattern in patterns for key in keys if matches(pattern, key)}
    assert ours == routed, f"seed {seed}"
    assert 0.05 < len(ours) / (len(patterns) * len(keys)) < 0.95, "too much or too little matches"


def routed_by_the_broker(url: str, patterns: list[str], keys: list[str]) -> set[tuple[str, str]]:
    """Return which key reaches a queue that is bound by which pattern."""
    exchange = f"patterns-{uuid7()}"
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.exchange_declare(exchange, "topic", auto_delete=True)
        queues = [channel.queue_declare("", exclusive=True).method.queue for _ in patterns]
        for queue, pattern in zip(queues, patterns, strict=True):
            channel.queue_bind(queue, exchange, pattern)
        channel.confirm_delivery()
        for key in keys:
            channel.basic_publish(exchange, key, key.encode())
        return {
            (pattern, key)
            for queue, pattern in zip(queues, patterns, strict=True)
            for key in everything_in(channel, queue)
        }


def everything_in(channel, queue: str) -> list[str]:
    number = channel.queue_declare(queue, passive=True).method.message_count
    found = [channel.basic_get(queue, auto_ack=True)[2].decode() for _ in range(number)]
    assert channel.basic_get(queue)[0] is None
    return found
