"""What BROKER_URL, BROKER_USER and BROKER_PASSWORD say together."""

from __future__ import annotations

import pytest

from django_eventbus.exceptions import BadSetting
from django_eventbus.transports.rabbitmq.parameters import address_of, parameters_of
from tests.support.tables import table

SECRET = "hunter2"


@table(
    ("url", "hosts", "login", "virtual_host"),
    [
        ("amqp://host", [("host", 5672)], ("guest", "guest"), "/"),
        ("amqps://host/", [("host", 5671)], ("guest", "guest"), "/"),
        ("amqp://host:1/%2F", [("host", 1)], ("guest", "guest"), "/"),
        ("amqp://me:a%2Fb%40c@host/shop", [("host", 5672)], ("me", "a/b@c"), "shop"),
        ("amqp://me:a@b:c@host/a%3Fb", [("host", 5672)], ("me", "a@b:c"), "a?b"),
        ("amqp://me@one:1,two/x", [("one", 1), ("two", 5672)], ("me", "guest"), "x"),
        ("amqp://[::1]:7,[::2]/x", [("::1", 7), ("::2", 5672)], ("guest", "guest"), "x"),
    ],
)
def test_a_url_is_read(url, hosts, login, virtual_host):
    address = address_of(url)

    assert list(address.hosts) == hosts
    assert (address.user, address.password) == login
    assert address.virtual_host == virtual_host


def test_user_and_password_may_stand_apart_and_come_first(settings):
    apart = {"BROKER_USER": "me", "BROKER_PASSWORD": SECRET}
    settings.EVENTBUS = {**settings.EVENTBUS, **apart}

    address = address_of("amqp://other:word@host/")

    assert (address.user, address.password) == ("me", SECRET)
    assert SECRET not in repr(address) + address.words


@table(
    "url",
    [
        f"amqp://me:{SECRET}",
        f"amqp://me:{SECRET}@",
        f"amqp://me:{SECRET}@host:port",
        f"amqp://me:{SECRET}@host:70000",
        f"amqp://me:{SECRET}@host,,other",
        f"amqp://me:{SECRET}/shop",
        f"amqp://me@host?password={SECRET}",
        f"amqp://me@host/shop?password={SECRET}",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_its_secret(url):
    with pytest.raises(BadSetting, match="value not shown") as raised:
        address_of(url)

    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is raised.value.__context__ is None


def test_a_body_of_any_size_that_a_broker_may_accept_is_received():
    (parameters,) = parameters_of(address_of("amqp://host/"), "tests")

    # pika 1.5 has this limit, and 1.4 has none.
    assert getattr(parameters, "max_inbound_message_body_size", 2**29) == 2**29
