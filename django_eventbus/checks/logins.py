"""Checks of passwords: where they are shown, and whether they are sent in plain text."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote

from django.core.checks import CheckMessage, Warning

from django_eventbus.conf import conf

#: The password of a new RabbitMQ, which is not a secret.
_PUBLIC = ("", "guest")
_URLS = {"BROKER_URL": ("amqp", "amqps"), "MANAGEMENT_URL": ("http", "https")}
_PLAIN = ("amqp", "http")


def check_passwords_in_urls(**kwargs: Any) -> Iterator[CheckMessage]:
    for key, url in _urls():
        if conf.is_debug and password_in(url) not in _PUBLIC:
            yield Warning(
                f"{key} contains a password, and DEBUG is on: Django's debug page shows it to "
                "everybody who causes an error.",
                hint="Use BROKER_USER and BROKER_PASSWORD, whose value the debug page hides, and "
                f"remove the user and the password from {key}.",
                id="eventbus.W002",
            )


def check_plain_connections(**kwargs: Any) -> Iterator[CheckMessage]:
    for key, url in _urls():
        # MANAGEMENT_URL without a user has the login of the broker.
        password = password_in(url) or conf.broker_password or password_in(conf.broker_url)
        remote = [host for host in hosts_of(url) if not is_this_machine(host)]
        if _scheme(url) in _PLAIN and password not in _PUBLIC and remote:
            secure = f"{_scheme(url)}s"
            yield Warning(
                f"{key} sends a password to {', '.join(remote)} without TLS.",
                hint=f"Use {secure}://, or silence this check if the network is yours alone.",
                id="eventbus.W003",
            )


def check_verification(**kwargs: Any) -> Iterator[CheckMessage]:
    if conf.broker_options.tls.get("VERIFY") is False:
        yield Warning(
            "VERIFY is False in TLS of BROKER_OPTIONS, so anybody on the network can pose as the "
            "broker.",
            hint="Remove VERIFY, and name the certificate of your authority with CA.",
            id="eventbus.W004",
        )


def _urls() -> Iterator[tuple[str, str]]:
    for key, url in (("BROKER_URL", conf.broker_url), ("MANAGEMENT_URL", conf.management_url)):
        if url and _scheme(url) in _URLS[key]:
            yield key, url


def _scheme(url: str) -> str:
    return url.partition("://")[0]


def password_in(url: str) -> str:
    """Return the password of *url*; "" if there is none."""
    # As the transport does, at the last @: a password may contain one, and a slash.
    credentials, at, _place = url.partition("://")[2].rpartition("@")
    return unquote(credentials.partition(":")[2]) if at else ""


def hosts_of(url: str) -> list[str]:
    """Return the names of the hosts of *url*."""
    places = url.partition("://")[2].rpartition("@")[2].partition("/")[0]
    return [_host(each) for each in places.split(",")]


def _host(place: str) -> str:
    if place.startswith("["):
        return place[1:].partition("]")[0]
    return place.partition(":")[0]


def is_this_machine(host: str) -> bool:
    """Whether *host* is the loopback interface."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost" or host.lower().endswith(".localhost")
