"""See whether a service answers, by logging in to it."""

from __future__ import annotations

import re
import socket
import struct
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

import psycopg

#: A field of a table: its name, its type and its length come before the value.
VERSION = re.compile(rb"\x07versionS....([\d.]+)", re.S)


class Unavailable(Exception):
    """A way to a service does not lead there; says why."""


def postgres_answers(url: str) -> None:
    """Log in and see that databases can be created; raise Unavailable if not."""
    try:
        with psycopg.connect(url, connect_timeout=5) as session:
            query = "SELECT rolcreatedb OR rolsuper FROM pg_roles WHERE rolname = current_user"
            row = session.execute(query).fetchone()
    except psycopg.Error as error:
        raise Unavailable(f"no answer from PostgreSQL: {str(error).splitlines()[0]}") from None
    if not row or not row[0]:
        raise Unavailable("the PostgreSQL role may not create databases")


def rabbitmq_answers(url: str) -> str:
    """Log in and open the vhost with just enough AMQP; return the version, or raise Unavailable."""
    parts = urlsplit(url)
    address = (parts.hostname or "127.0.0.1", parts.port or 5672)
    try:
        with socket.create_connection(address, timeout=10) as link, link.makefile("rwb") as stream:
            return shake_hands(
                stream, parts.username or "guest", parts.password or "guest", parts.path
            )
    except (OSError, struct.error) as error:
        raise Unavailable(f"no answer from RabbitMQ: {error}") from None


def shake_hands(stream: BinaryIO, user: str, password: str, path: str) -> str:
    start, start_ok, tune, tune_ok, opening, open_ok = 10, 11, 30, 31, 40, 41
    login = f"\0{unquote(user)}\0{unquote(password)}".encode()
    vhost = unquote(path[1:]) or "/"
    stream.write(b"AMQP\0\0\x09\x01")
    version = VERSION.search(receive(stream, start))
    response = struct.pack(">I", len(login)) + login
    send(stream, start_ok, bytes(4) + short_string("PLAIN") + response + short_string("en_US"))
    send(stream, tune_ok, receive(stream, tune))
    send(stream, opening, short_string(vhost) + bytes(2))
    receive(stream, open_ok)
    close, close_ok = 50, 51
    send(stream, close, struct.pack(">H", 200) + bytes(5))
    receive(stream, close_ok)
    return version[1].decode() if version else ""


def short_string(text: str) -> bytes:
    data = text.encode()
    return bytes([len(data)]) + data


def send(stream: BinaryIO, method: int, arguments: bytes) -> None:
    payload = struct.pack(">HH", 10, method) + arguments
    stream.write(struct.pack(">BHI", 1, 0, len(payload)) + payload + b"\xce")


def receive(stream: BinaryIO, method: int) -> bytes:
    stream.flush()
    _, _, size = struct.unpack(">BHI", stream.read(7))
    payload = stream.read(size + 1)[:-1]
    received = struct.unpack(">HH", payload[:4])
    if received != (10, method):
        raise Unavailable(f"RabbitMQ refused the connection: method {received}")
    return payload[4:]
