"""A RabbitMQ of the tests' own, started once per worker, that may be alarmed and stopped."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.support.amqp import Amqp
from tests.support.certificates import Authority
from tests.support.helpers import eventually
from tests.support.private_servers import PrivateRabbitmq, free_port
from tests.support.skipping import skipped_if_missing

#: Give tests of one group to one worker: the node takes long to start.
ONE_WORKER = pytest.mark.xdist_group("own broker")
#: Likewise, with a node of its own: one worker with all of them would be the last to end.
OTHER_WORKER = pytest.mark.xdist_group("other people's buses")
MAX_MESSAGE_SIZE = 200_000


class OwnNode:
    """The node, with a TLS listener that wants a client certificate."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        self.client = self.authority.issue("client")
        self.server = PrivateRabbitmq()
        self.tls_port = free_port()
        certificate, key = self.authority.issue("server", "DNS:localhost")
        self.management_port = free_port()
        self.server.plugins = ["rabbitmq_management"]
        self.server.configuration = [
            f"management.tcp.port = {self.management_port}",
            "management.tcp.ip = 127.0.0.1",
            "collect_statistics_interval = 1000",
            f"max_message_size = {MAX_MESSAGE_SIZE}",
            f"listeners.ssl.1 = 127.0.0.1:{self.tls_port}",
            f"ssl_options.cacertfile = {self.authority.certificate}",
            f"ssl_options.certfile = {certificate}",
            f"ssl_options.keyfile = {key}",
            "ssl_options.verify = verify_peer",
            "ssl_options.fail_if_no_peer_cert = true",
        ]

    @property
    def management_url(self) -> str:
        return f"http://guest:guest@127.0.0.1:{self.management_port}"

    @contextmanager
    def alarm(self) -> Iterator[None]:
        """Make the broker block publishers, as it does when it runs out of memory."""
        self._set_memory_limit("0.0000001")
        try:
            eventually(self._is_in_alarm, timeout=20)
            yield
        finally:
            self._set_memory_limit("0.6")

    def count(self, what: str) -> int:
        """Return how many connections or channels the broker has."""
        lists = {
            "connections": "rabbit_networking:connections()",
            "channels": "rabbit_channel:list()",
        }
        return int(self.server.evaluate(f"length({lists[what]})"))

    def call(self, method: str, path: str, **body: object) -> bytes:
        """Ask the management plugin, or tell it to do something."""
        token = base64.b64encode(b"guest:guest").decode()
        headers = {"Authorization": f"Basic {token}", "Content-Type": "application/json"}
        url = f"http://127.0.0.1:{self.management_port}/api/{path}"
        data = None if method == "GET" else json.dumps(body).encode()
        with urlopen(Request(url, data=data, headers=headers, method=method)) as response:
            return bytes(response.read())

    def _set_memory_limit(self, fraction: str) -> None:
        self.server.evaluate(f"vm_memory_monitor:set_vm_memory_high_watermark({fraction})")

    def _is_in_alarm(self) -> bool:
        return "memory" in self.server.evaluate("rabbit_alarm:get_alarms()")


@pytest.fixture(scope="session")
def own_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnNode]:
    """Start the node once; a test that stops it must start it again."""
    with skipped_if_missing():
        node = OwnNode(tmp_path_factory.mktemp("certificates"))
        node.server.start()
    yield node
    node.server.remove()


@pytest.fixture
def own_broker(own_node: OwnNode, settings: object) -> OwnNode:
    """Work on the node, in a namespace of the test's own."""
    amqp = Amqp(own_node.server.url)
    settings.EVENTBUS = {**settings.EVENTBUS, **amqp.settings}  # type: ignore[attr-defined]
    return own_node
