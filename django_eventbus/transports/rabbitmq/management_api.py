"""Ask RabbitMQ's management plugin for policies and bindings, which AMQP cannot list."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from django_eventbus.conf import conf
from django_eventbus.transports.rabbitmq.parameters import BrokerAddress


class ManagementProblem(Exception):
    """The management plugin did not answer as expected; the text contains no secret."""


class _SameOrigin(HTTPRedirectHandler):
    """Follows no redirect to another server: urllib would send the password there."""

    def redirect_request(
        self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        """Return the request to *newurl*, or raise ManagementProblem."""
        if _origin(newurl) != _origin(req.full_url):
            fp.close()
            scheme, host, port = _origin(newurl)
            raise ManagementProblem(f"it redirects to another server, {scheme}://{host}:{port}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    return (
        parts.scheme,
        parts.hostname or "",
        parts.port or (443 if parts.scheme == "https" else 80),
    )


_OPENER = build_opener(_SameOrigin)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedQueue:
    """A queue as the management plugin shows it."""

    policy: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)
    #: The returned messages that the broker delivers later and does not count until then.
    delayed: int = 0
    #: The exchanges that it is bound to, with the routing keys.
    bindings: frozenset[tuple[str, str]] = frozenset()

    @property
    def delays_returned_messages(self) -> bool:
        """Whether a returned message waits where AMQP does not count it (since RabbitMQ 4.3)."""
        written = self.arguments.get("x-delayed-retry-type")
        return self.policy.get("delayed-retry-type", written) not in (None, "disabled")


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementFacts:
    """The facts that the management plugin knows."""

    #: The seconds by which the broker's clock is ahead of the clock of this host.
    skew: float
    queues: dict[str, ManagedQueue]
    #: All bindings: the exchange, the queue or exchange that is bound, and the routing key.
    bindings: list[tuple[str, str, str]] = field(default_factory=list)


class ManagementApi:
    """The HTTP API at MANAGEMENT_URL, for one virtual host."""

    def __init__(self, url: str, address: BrokerAddress) -> None:
        parts = urlsplit(url)
        place = parts.netloc.rpartition("@")[2]
        self._base = f"{parts.scheme}://{place}{parts.path.rstrip('/')}/api"
        user = unquote(parts.username or address.user)
        password = unquote(parts.password or "") if parts.username else address.password
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {token}"}
        self._vhost = quote(address.virtual_host, safe="")
        self.skew = 0.0

    def facts(self, queues: Iterable[str], exchanges: Iterable[str]) -> ManagementFacts:
        """Return the facts about *queues* and *exchanges*, or raise ManagementProblem."""
        found = {
            name: replace(queue, bindings=self._bindings_of(name))
            for name in queues
            if (queue := self.queue(name))
        }
        bindings = [each for exchange in exchanges for each in self._bindings(exchange)]
        return ManagementFacts(skew=self.skew, queues=found, bindings=bindings)

    def queue(self, name: str) -> ManagedQueue | None:
        """Return the queue *name*, None if it is missing, or raise ManagementProblem."""
        shown = self._get(self._path(name))
        if shown is None:
            return None
        return ManagedQueue(
            policy=dict(shown.get("effective_policy_definition") or {}),
            arguments=dict(shown.get("arguments") or {}),
            delayed=int(shown.get("messages_delayed") or 0),
        )

    def _bindings_of(self, queue: str) -> frozenset[tuple[str, str]]:
        bindings = self._get(f"{self._path(queue)}/bindings") or []
        return frozenset((each["source"], each["routing_key"]) for each in bindings)

    def _path(self, queue: str) -> str:
        return f"queues/{self._vhost}/{quote(queue, safe='')}"

    def _bindings(self, exchange: str) -> list[tuple[str, str, str]]:
        path = f"exchanges/{self._vhost}/{quote(exchange, safe='')}/bindings/source"
        found = self._get(path) or []
        return [(exchange, each["destination"], each["routing_key"]) for each in found]

    def _get(self, path: str) -> Any:
        """Return the answer for *path*, or None if there is nothing."""
        request = Request(f"{self._base}/{path}", headers=self._headers)  # noqa: S310
        try:
            with _OPENER.open(request, timeout=conf.broker_options.connect_timeout) as response:
                self._measure_skew(response.headers.get("Date"))
                return json.load(response)
        except HTTPError as error:
            error.close()
            if error.code == 404:
                return None
            raise ManagementProblem(f"it answers {error.code}") from None
        except (OSError, HTTPException, ValueError) as error:
            raise ManagementProblem(f"it does not answer ({type(error).__name__})") from None

    def _measure_skew(self, text: str | None) -> None:
        if text:
            broker_time = parsedate_to_datetime(text)
            self.skew = (broker_time - datetime.now(UTC)).total_seconds()
