"""Brokers behind one interface; the scheme of BROKER_URL selects the transport."""

from __future__ import annotations

from importlib import import_module

from django_eventbus.exceptions import BadSetting
from django_eventbus.transports.contract import Transport

#: By name, so that a project imports only the client of its transport.
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
        raise BadSetting(
            "BROKER_URL", f"has the unknown scheme {scheme_of(url)!r}. The schemes are {known}."
        )
    transport: Transport = import_module(home).from_url(url)
    return transport
