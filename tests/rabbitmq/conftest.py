"""Fixtures of the tests that need a broker."""

from __future__ import annotations

import pytest

from tests.rabbitmq.shop import Shop


@pytest.fixture
def shop(amqp, settings):
    shop = Shop(amqp, settings)
    yield shop
    with amqp.channel() as channel:
        channel.queue_delete(f"{shop.queue}.side")
