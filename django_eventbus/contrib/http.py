"""Forward events to an HTTP endpoint, signed, once per attempt."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import re
import socket
import ssl
import string
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from django_eventbus.conf.parsers import wait
from django_eventbus.durations import Duration
from django_eventbus.events.event import Event, ReceivedEvent
from django_eventbus.events.text import storable
from django_eventbus.exceptions import ForwardFailed
from django_eventbus.subscriptions.subscribe import subscribe

#: Characters of a response that are kept with the error.
_EXCERPT = 500
_SUCCESS = range(200, 300)
#: The characters of a request line.
_PRINTABLE = re.compile(r"[!-~]+")
_CONNECTIONS = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The URL, the timeouts, the secret and the headers of an endpoint."""

    scheme: str
    host: str
    port: int | None
    path: str
    connect_timeout: float
    read_timeout: float
    secret: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)

    def post(self, event: Event | ReceivedEvent) -> None:
        """Post *event*, or raise ForwardFailed. Redirects are not followed."""
        body = msgspec.json.encode(event.payload if isinstance(event, ReceivedEvent) else event)
        connection = self._connection()
        try:
            connection.connect()
            with _deadline(connection.sock, self.read_timeout):
                connection.request("POST", self.path, body, self._headers(event, body))
                with connection.getresponse() as response:
                    excerpt = _excerpt(response)
        except (OSError, http.client.HTTPException) as error:
            raise ForwardFailed(f"{self.host} did not answer: {type(error).__name__}") from error
        finally:
            connection.close()
        if response.status not in _SUCCESS:
            raise ForwardFailed(
                storable(f"{self.host} answered {response.status}: {excerpt}", _EXCERPT * 2),
                response.status,
                response.getheader("Retry-After", ""),
            )

    def _connection(self) -> http.client.HTTPConnection:
        options: dict[str, Any] = {"timeout": self.connect_timeout}
        if self.scheme == "https":
            options["context"] = ssl.create_default_context()
        connection: http.client.HTTPConnection = _CONNECTIONS[self.scheme](
            self.host, self.port, **options
        )
        return connection

    def _headers(self, event: Event | ReceivedEvent, body: bytes) -> dict[str, str]:
        meta = event.meta
        return {
            **self.headers,
            "Content-Type": "application/json",
            "Event-Type": _ascii(meta.type),
            "Event-Version": str(meta.version),
            "Event-Attempt": str(meta.attempt),
            "Event-Correlation-Id": _ascii(meta.correlation_id),
            **self._signature(_ascii(meta.id), body),
        }

    def _signature(self, event_id: str, body: bytes) -> dict[str, str]:
        """Return the headers of Standard Webhooks; every attempt has the id of the event."""
        sent_at = str(int(time.time()))
        headers = {"webhook-id": event_id, "webhook-timestamp": sent_at}
        if self.secret:
            signed = f"{event_id}.{sent_at}.".encode() + body
            digest = hmac.digest(self.secret, signed, hashlib.sha256)
            headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
        return headers


@contextmanager
def _deadline(connected: socket.socket, seconds: float) -> Iterator[None]:
    """Raise TimeoutError after *seconds*, however slowly the other side sends."""
    # The timeout of a socket begins again with each byte, and a header may arrive byte by byte.
    connected.settimeout(seconds)
    over = threading.Event()

    def end() -> None:
        over.set()
        with suppress(OSError):
            # Of the plain socket: that of a TLS socket would remove the state that a read uses.
            socket.socket.shutdown(connected, socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        if over.is_set():
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()


def _excerpt(response: http.client.HTTPResponse) -> str:
    """Return the start of the response, or "" if it cannot be read; the status decides."""
    try:
        # Only the available bytes: a slow response could take hours.
        return response.read1(_EXCERPT).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return ""


def _ascii(text: str) -> str:
    """Return *text* percent-encoded for a header: other services may send any characters."""
    return quote(text, safe=f" {string.punctuation}", errors="replace")


def forward(  # noqa: PLR0913
    pattern: str | type[Event],
    url: str,
    *,
    name: str,
    secret: str = "",
    headers: Mapping[str, str] | None = None,
    connect_timeout: Duration = "5s",
    read_timeout: Duration = "30s",
    **options: Any,
) -> Callable[[Event | ReceivedEvent], None]:
    """Post each event that *pattern* matches to *url*; *options* are those of @subscribe."""
    place = urlsplit(url)
    is_plain = _PRINTABLE.fullmatch(url) and not place.username and not place.fragment
    if place.scheme not in _CONNECTIONS or not place.hostname or not is_plain:
        raise ValueError(
            "forward() needs a URL without a login, such as https://example.com/events"
        )
    endpoint = Endpoint(
        scheme=place.scheme,
        host=place.hostname,
        port=place.port,
        path=f"{place.path or '/'}{'?' if place.query else ''}{place.query}",
        connect_timeout=wait(connect_timeout),
        read_timeout=wait(read_timeout),
        secret=secret.encode(),
        headers=dict(headers or {}),
    )
    # Not in a transaction, which would stay open until the endpoint answers.
    settled = {"atomic": False, **options}
    subscribe(pattern, name=name, **settled)(endpoint.post)
    return endpoint.post
