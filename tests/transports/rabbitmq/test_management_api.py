"""The management plugin gets the password, and nobody else does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from django_eventbus.transports.rabbitmq.management_api import (
    ManagementApi,
    ManagementProblem,
)
from django_eventbus.transports.rabbitmq.parameters import address_of

SECRET = "hunter2"


class Server(ThreadingHTTPServer):
    """Redirects to *target*, if it has one, and keeps the logins that it was sent."""

    def __init__(self, target: str = "") -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.target = target
        self.logins: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.logins.append(self.headers["Authorization"])
        if self.server.target and "moved" not in self.path:
            self.send_response(302)
            self.send_header("Location", f"{self.server.target}/moved{self.path}")
            self.end_headers()
            return
        self.send_response(404)
        self.end_headers()

    def log_message(self, *args) -> None: ...


@contextmanager
def served(target: str = "") -> Iterator[Server]:
    with Server(target) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(10)


def asked(server: Server) -> object:
    return ManagementApi(server.url, address_of(f"amqp://me:{SECRET}@host/")).facts(["q"], [])


def test_a_redirect_to_another_server_is_not_followed_with_the_password():
    with served() as other, served(other.url) as server:
        with pytest.raises(ManagementProblem, match="redirects to another server") as caught:
            asked(server)

        assert other.logins == []
        assert f":{other.server_port}" in str(caught.value)
        assert SECRET not in str(caught.value)


def test_a_redirect_to_another_scheme_is_not_followed_either():
    with served("https://127.0.0.1:1") as server, pytest.raises(ManagementProblem, match="https"):
        asked(server)


def test_a_redirect_to_the_same_server_is_followed():
    with served() as server:
        server.target = server.url
        asked(server)

        assert len(server.logins) == 2
        assert all(server.logins)
