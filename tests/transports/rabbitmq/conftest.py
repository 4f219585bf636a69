"""Fixtures of the tests that need a broker, some of them one that they may kill and starve."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support import services
from tests.support.amqp import Amqp
from tests.support.processes import Manage
from tests.support.skipping import skipped_if_missing
from tests.support.tcp_proxy import TcpProxy
from tests.transports.rabbitmq.management import VirtualHost
from tests.transports.rabbitmq.shop import Shop
from tests.transports.rabbitmq.storm import HASTY, Load, Storm


@pytest.fixture
def shop(amqp, settings):
    shop = Shop(amqp, settings)
    yield shop
    with amqp.channel() as channel:
        channel.queue_delete(f"{shop.queue}.side")


@pytest.fixture(scope="session")
def node() -> Iterator[services.PrivateRabbitmq]:
    """A RabbitMQ that the tests of the group "chaos" share; each leaves it running."""
    with skipped_if_missing(), services.private_rabbitmq() as server:
        yield server


@pytest.fixture
def proxy(node: services.PrivateRabbitmq) -> Iterator[TcpProxy]:
    """A way to the node that can be cut."""
    with TcpProxy(node.port) as proxy:
        yield proxy


@pytest.fixture
def storm(manage: Manage, settings: Any) -> Iterator[Callable[..., Storm]]:
    """Begin a load on the broker at a URL."""
    load = Load()

    def begin(url: str, **changes: object) -> Storm:
        amqp = Amqp(url, **{**HASTY, **changes})
        settings.EVENTBUS = {**settings.EVENTBUS, **amqp.settings}
        return Storm(manage, amqp, load)

    yield begin
    load.end()


@pytest.fixture
def virtual_host(own_node, settings):
    """A virtual host of the test's own, where it may set policies and permissions."""
    host = VirtualHost(own_node, settings)
    yield host
    host.remove()
