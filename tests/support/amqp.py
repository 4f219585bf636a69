"""A namespace of one's own on the broker that the tests share, and a raw client for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pika
import pytest

from django_eventbus.durations import label, seconds
from django_eventbus.events.message import uuid7
from tests.end_to_end.oracle import QUICK

QUEUES = ("acts", "counts", "steps")
#: The delays that subscriptions of the test project name themselves.
OWN_DELAYS = ("50ms", "100ms")
#: What a migration of queues may have added to a queue's name.
VERSIONS = ("", ".v2", ".v3")


class Amqp:
    """A namespace on a broker, and what a test or a process needs to work in it."""

    def __init__(self, url: str, **settings: object):
        self.url = url
        self.namespace = f"test{uuid7().hex[-10:]}"
        quick = {**json.loads(QUICK), "BROKER_URL": url, "NAMESPACE": self.namespace}
        self.settings: dict[str, object] = {**quick, **settings}

    @property
    def environment(self) -> dict[str, str]:
        """What a process is told by; add more settings with with_settings()."""
        return self.with_settings()

    def with_settings(self, **settings: object) -> dict[str, str]:
        changed = json.dumps({**self.settings, **settings})
        return {"EVENTBUS_TEST_SETTINGS": changed, "EVENTBUS_TEST_WAITS": "0.1 1"}

    def queue(self, name: str = "acts") -> str:
        """Return the full name of a queue of the test project."""
        return f"{self.namespace}.shop-tests.{name}"

    @contextmanager
    def channel(self) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
        """Open a channel of a raw client."""
        with pika.BlockingConnection(pika.URLParameters(self.url)) as connection:
            yield connection.channel()

    def count(self, queue: str) -> int:
        """Return how many messages are ready in *queue*."""
        with self.channel() as channel:
            return int(channel.queue_declare(queue, passive=True).method.message_count)

    def delete_everything(self) -> None:
        """Leave nothing behind on a broker that others use too."""
        delays = {*OWN_DELAYS, *self.settings["RETRY_DELAYS"]}  # type: ignore[misc]
        tiers = [label(seconds(delay)) for delay in delays]
        with self.channel() as channel:
            names = map(self.queue, QUEUES)
            for name in [f"{each}{version}" for each in names for version in VERSIONS]:
                parts = (".dlq", ".retiring", ".retired", *(f".retry.{tier}" for tier in tiers))
                for each in (name, *(f"{name}{part}" for part in parts)):
                    channel.queue_delete(each)
                channel.exchange_delete(f"{name}.retry")
                channel.exchange_delete(f"{name}.dlq")
            channel.exchange_delete(f"{self.namespace}.events")
            channel.exchange_delete(f"{self.namespace}.commands")


@pytest.fixture
def amqp(rabbitmq_url: str, settings: object, request: pytest.FixtureRequest) -> Iterator[Amqp]:
    """Work on the shared broker, in a namespace that is deleted afterwards."""
    processes = request.getfixturevalue("manage") if "manage" in request.fixturenames else None
    amqp = Amqp(rabbitmq_url)
    settings.EVENTBUS = {**settings.EVENTBUS, **amqp.settings}  # type: ignore[attr-defined]
    yield amqp
    if processes:
        # First, though it was there before: a worker declares again what is deleted.
        processes.close()
    amqp.delete_everything()
