"""Headers that anybody may send, of every type and at every extreme: nothing ends, nothing is lost."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pika
import pytest

from django_eventbus.conf import conf
from django_eventbus.events import message as names
from django_eventbus.models import DeadLetter, InboxRecord
from django_eventbus.subscriptions.queue_specs import queue_specs
from django_eventbus.transports import connect
from django_eventbus.workers.crew import Crew
from django_eventbus.workers.loops import ConsumerLoop
from tests.support.helpers import eventually

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgres,
    pytest.mark.rabbitmq,
    pytest.mark.timeout(900),
]

MESSAGES = int(os.environ.get("EVENTBUS_TEST_FUZZ", "500"))
HEADERS = [
    *(each for name, each in vars(names).items() if name.isupper() and isinstance(each, str)),
    "x-death", "x-delivery-count", "x-acquired-count", "x-first-death-reason", "own",
]  # fmt: skip
TIMES = ["9999-12-31T23:59:59+00:00", "0001-01-01T00:00:00+14:00", "2026-01-01", "soon", ""]
VALUES: list[Any] = [
    *TIMES, "x" * 4_000, "\x00", "ünï", "true", "-1", "9" * 18, b"\xff\x00", True, False, None,
    0, 1, -1, -100, 127, 255, 2**15, 2**30, 2**31, 2**53, 2**60, 2**63 - 1, -(2**63),
    Decimal("-1.5"), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC),
    [], [1, "a", [None]], [{"queue": "q", "reason": "expired"}], [[[]]], {}, {"a": {"b": [1]}},
]  # fmt: skip
BODIES = [b'{"do": "ok"}', b'{"do": "fail"}', b'{"do": "fail once"}', b"not JSON", b"", b"[1e5]"]
#: A stranger who knows these may settle the messages of others. See the threat model.
ADDRESSED = {names.SUBSCRIPTION, names.ORIGINAL_QUEUE}


def messages(seed: int) -> Iterator[tuple[pika.BasicProperties, bytes]]:
    chance = random.Random(seed)
    for number in range(MESSAGES):
        headers = {
            chance.choice(HEADERS): chance.choice(VALUES) for _ in range(chance.randint(1, 6))
        }
        yield (
            pika.BasicProperties(
                message_id=f"fuzz-{number}",
                type="act.now",
                delivery_mode=2,
                headers=headers,
                timestamp=chance.choice([None, 0, 1, 2**33, 2**63]),
                priority=chance.choice([None, 0, 255]),
                content_type=chance.choice([None, "application/json", "text/plain"]),
            ),
            chance.choice(BODIES),
        )


def test_no_header_ends_a_consumer_or_loses_a_message(amqp, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "DEFER_LIMIT": "1s"}
    transport = connect(conf.broker_url)
    transport.declare(queue_specs())
    queue, seed = conf.queue("acts"), random.randrange(2**32)
    with amqp.channel() as channel:
        channel.confirm_delivery()
        for properties, body in messages(seed):
            channel.basic_publish("", queue, body, properties)

    crew = Crew()
    loop = ConsumerLoop(transport, [queue], crew.stop, prefetch=20)
    for name in loop.thread_names(4):
        crew.add(name, loop.run)
    crew.add("watch", lambda: wait_until_settled(amqp, queue, crew))
    crew.run()
    loop.close()

    print(f"The seed was {seed}.")
    assert unsettled(seed) == Counter()


def wait_until_settled(amqp, queue: str, crew: Crew) -> None:
    try:
        eventually(lambda: amqp.count(queue) == 0 and not waiting(), timeout=60 + MESSAGES / 20)
    finally:
        crew.stop.set()


def waiting() -> bool:
    return InboxRecord.objects.filter(state__in=["started", "retrying", "deferred"]).exists()


def unsettled(seed: int) -> Counter[str]:
    """Return the ids of messages that were neither handled nor parked with their exact bytes."""
    handled = set(InboxRecord.objects.filter(state="handled").values_list("message_id", flat=True))
    parked = {
        (letter.message_id, bytes(letter.body)) for letter in DeadLetter.objects.defer("headers")
    }
    return Counter(
        properties.message_id
        for properties, body in messages(seed)
        if properties.message_id not in handled and (properties.message_id, body) not in parked
    )
