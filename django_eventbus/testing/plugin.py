"""The pytest plugin: --eventbus-broker and the fixture eventbus. No Django at import."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from django_eventbus.testing import broker_choice

if TYPE_CHECKING:
    from django_eventbus.testing.bus import EventBus


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --eventbus-broker."""
    parser.getgroup("eventbus").addoption(
        "--eventbus-broker",
        metavar="URL",
        default="",
        help="Run tests of the event bus on this broker (amqp://…), each in its own namespace, "
        "instead of on the database of the tests.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Use the broker of the option."""
    broker_choice.choose(config.getoption("--eventbus-broker"))


# db must be an argument: pytest-django prepares databases only for tests that visibly need them,
# and others would use the real one. settings too: an override of our own that ends before a later
# one of the fixture settings would be restored by it, and stay.
@pytest.fixture
def eventbus(request: pytest.FixtureRequest, db: None, settings: Any) -> Iterator[EventBus]:
    """The bus of this test: published, parked, assert_published(), deliver(), drain()."""
    from django_eventbus.conf import conf
    from django_eventbus.testing.bus import EventBus

    settings.EVENTBUS = broker_choice.settings_for(broker_choice.chosen(), conf.given)
    bus = EventBus(databases=_databases(request))
    yield bus
    bus.close()


def _databases(request: pytest.FixtureRequest) -> Iterable[str]:
    """Return the databases that the test may use."""
    from django.db import DEFAULT_DB_ALIAS, connections

    marker = request.node.get_closest_marker("django_db")
    named = marker.kwargs.get("databases") if marker else None
    if named == "__all__":
        return list(connections)
    return named or [DEFAULT_DB_ALIAS]
