"""Read BROKER_URL. Its password is never repeated, in no message and no repr."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote

import pika

from django_eventbus.conf import conf
from django_eventbus.exceptions import BadSetting
from django_eventbus.transports.rabbitmq.tls import context

_PORTS = {"amqp": 5672, "amqps": 5671}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAddress:
    """Where the broker is, and who we are there."""

    scheme: str
    hosts: tuple[tuple[str, int], ...]
    user: str
    virtual_host: str
    password: str = field(repr=False)

    @property
    def words(self) -> str:
        """Where it is, for people to read."""
        places = ",".join(f"{host}:{port}" for host, port in self.hosts)
        return f"{self.scheme}://{places}/{self.virtual_host}"


def address_of(url: str) -> BrokerAddress:
    """Read amqp://user:password@host:5672,other:5672/vhost, or raise BadSetting."""
    scheme, _, rest = url.partition("://")
    # The last @, because a password may hold one; split by hand, because urllib's errors
    # quote the part of the password that it took for a port.
    credentials, at, places = rest.rpartition("@")
    hosts, slash, virtual_host = places.partition("/")
    if "?" in virtual_host:
        raise BadSetting(
            "BROKER_URL",
            "has options after a '?' (it is not repeated here). Use HEARTBEAT, CONNECT_TIMEOUT and "
            "BROKER_TLS; write '%3F' for a '?' in the virtual host.",
        )
    user, _, password = credentials.partition(":") if at else ("", "", "")
    return BrokerAddress(
        scheme=scheme,
        hosts=tuple(_host(each, scheme) for each in hosts.split(",")),
        user=conf.broker_user or unquote(user) or "guest",
        password=conf.broker_password or unquote(password) or "guest",
        virtual_host=unquote(virtual_host) if slash and virtual_host else "/",
    )


def _host(text: str, scheme: str) -> tuple[str, int]:
    name, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    name, port = (name, port) if colon else (text, str(_PORTS[scheme]))
    if not name or not port.isdigit() or not 0 < int(port) < 65536 or "?" in text:
        raise BadSetting(
            "BROKER_URL",
            "is no URL like amqp://user:password@host:5672/vhost (it is not repeated here). "
            "Percent-encode '/', '@' and ',' in the password, or use BROKER_PASSWORD.",
        )
    return name.strip("[]"), int(port)


def parameters_of(address: BrokerAddress, purpose: str) -> Iterator[pika.ConnectionParameters]:
    """Yield what pika needs to connect to each host in turn."""
    is_tls = address.scheme == "amqps"
    for host, port in address.hosts:
        yield pika.ConnectionParameters(
            host=host,
            port=port,
            virtual_host=address.virtual_host,
            credentials=pika.PlainCredentials(address.user, address.password),
            heartbeat=round(conf.heartbeat),
            socket_timeout=conf.connect_timeout,
            stack_timeout=conf.connect_timeout,
            ssl_options=pika.SSLOptions(context(), host) if is_tls else None,
            client_properties={"connection_name": process_name(purpose)},
        )


def process_name(purpose: str) -> str:
    """Say service, purpose, host and process, for the broker's own screens."""
    return f"{conf.service} {purpose} {socket.gethostname()}:{os.getpid()}"
