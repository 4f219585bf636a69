"""A bus as one of the five documents lays it out, on either transport, joined by its recipe."""

from __future__ import annotations

import pytest

from tests.other_buses.joined import OnDatabase, OnRabbitmq
from tests.support.own_broker import OTHER_WORKER

RABBITMQ = pytest.param("rabbitmq", marks=[pytest.mark.rabbitmq, OTHER_WORKER], id="rabbitmq")


@pytest.fixture(params=["database", RABBITMQ])
def joined(request, transactional_db, no_subscriptions, settings):
    """Join the bus that the test's module names, with a service that subscribes to nothing yet."""
    layout = request.module.LAYOUT
    if request.param == "database":
        bus = OnDatabase(layout, settings)
    else:
        node, hands = request.getfixturevalue("own_node"), request.getfixturevalue("hands")
        bus = OnRabbitmq(layout, settings, hands, node.server.url)
    yield bus
    bus.close()


@pytest.fixture
def on_rabbitmq(transactional_db, no_subscriptions, settings, own_node, hands, request):
    """Likewise, for what only a broker can show."""
    bus = OnRabbitmq(request.module.LAYOUT, settings, hands, own_node.server.url)
    yield bus
    bus.close()
