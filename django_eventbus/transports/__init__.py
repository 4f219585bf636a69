"""Brokers behind one contract; the URL's scheme says which."""

from __future__ import annotations

from importlib import import_module

from django_eventbus.exceptions import BadSetting
from django_eventbus.transports.contract import Transport

#: By name, so that a project that needs one transport never imports the other's client.
HOMES = {
    "amqp": "django_eventbus.transports.rabbitmq",
    "amqps": "django_eventbus.transports.rabbitmq",
    "database": "django_eventbus.transports.database",
}


def scheme_of(url: str) -> str:
    return url.partition("://")[0]


def connect(url: str) -> Transport:
    """Return the transport that *url* names. Nothing is contacted yet."""
    home = HOMES.get(scheme_of(url))
    if home is None:
        # The URL may hold a password: name its scheme only.
        known = ", ".join(f"{scheme}://" for scheme in HOMES)
        raise BadSetting("BROKER_URL", f"no transport {scheme_of(url)!r}; there is {known}.")
    transport: Transport = import_module(home).from_url(url)
    return transport
