"""Events forwarded to a real HTTP endpoint."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from django_eventbus import Event
from django_eventbus.contrib.http import forward
from django_eventbus.models import Attempt
from django_eventbus.subscriptions.outcomes import Defer, Handled, Park, Retry
from django_eventbus.subscriptions.queue_specs import queue_specs
from tests.support.private_servers import free_port
from tests.support.tables import table

pytestmark = pytest.mark.django_db(transaction=True)


class Endpoint(ThreadingHTTPServer):
    """Answers as it is told, and keeps what it was sent."""

    status, headers, answer, length = 204, {}, b"", None
    #: Bytes that it sends one by one, without an end.
    trickle = b""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.requests = []
        self.go_on = threading.Event()
        self.go_on.set()
        self.is_over = threading.Event()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/events?from=shop"


class Answer(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, dict(self.headers), body))
        self.server.go_on.wait(20)
        if self.server.trickle:
            self.wfile.write(self.server.answer)
            while self.write(self.server.trickle) and not self.server.is_over.wait(0.05):
                pass
            return
        self.send_response(self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        length = self.server.length or len(self.server.answer)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(self.server.answer)
        if length > len(self.server.answer):
            # Until the other side hangs up.
            self.rfile.read(1)

    def write(self, part):
        try:
            self.wfile.write(part)
        except OSError:
            return False
        return True

    def log_message(self, *args): ...


@pytest.fixture
def endpoint():
    with Endpoint() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.go_on.set()
        server.is_over.set()
        server.shutdown()
        thread.join(10)


@pytest.fixture
def forwarded(bus, endpoint):
    def start(pattern="order.*", url=None, **options):
        options = {"name": "hook", "retry": ["30s"], "tries": 2, **options}
        forward(pattern, url or endpoint.url, **options)
        bus.transport.declare(queue_specs())

    return start


class OrderPlaced(Event, type="order.placed"):
    order_id: int


def test_an_event_is_posted_with_its_payload_and_a_signature(bus, endpoint, forwarded):
    forwarded(secret="whisper", headers={"X-Tenant": "north"})
    message = bus.put(body=b'{"order_id": 7}', correlation_id="chain")

    assert bus.consume() == [Handled()]

    ((path, headers, body),) = endpoint.requests
    assert (path, json.loads(body)) == ("/events?from=shop", {"order_id": 7})
    assert headers["webhook-id"] == message.id
    assert headers["Event-Type"] == "order.placed"
    assert headers["Event-Correlation-Id"] == "chain"
    assert headers["X-Tenant"] == "north"
    signed = f"{message.id}.{headers['webhook-timestamp']}.".encode() + body
    digest = base64.b64encode(hmac.digest(b"whisper", signed, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{digest}"


def test_a_typed_event_is_posted_too_and_unsigned_without_a_secret(bus, endpoint, forwarded):
    forwarded(OrderPlaced)
    bus.put(body=b'{"order_id": 7}')

    assert bus.consume() == [Handled()]

    ((_, headers, body),) = endpoint.requests
    assert json.loads(body) == {"order_id": 7}
    assert "webhook-signature" not in headers


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *[(200, Handled), (299, Handled), (409, Retry), (429, Retry), (500, Retry)],
        *[(503, Retry), (425, Defer), (301, Park), (400, Park), (404, Park), (422, Park)],
    ],
)
def test_the_answer_decides(bus, endpoint, forwarded, status, kind):
    forwarded()
    endpoint.status = status
    endpoint.headers = {"Location": endpoint.url} if status == 301 else {}
    bus.put()

    assert [type(each) for each in bus.consume()] == [kind]
    # A redirect is not followed.
    assert len(endpoint.requests) == 1


def test_the_error_keeps_an_excerpt_of_the_answer_and_its_wish(bus, endpoint, forwarded):
    forwarded()
    endpoint.status, endpoint.headers = 503, {"Retry-After": "7"}
    endpoint.answer = b"too busy, " * 500
    bus.put()

    assert bus.consume() == [Retry(delay=7.0, by_tier=False)]

    attempt = Attempt.objects.get()
    assert attempt.error.startswith("127.0.0.1 answered 503: too busy, too busy")
    assert len(attempt.error) < 600


@pytest.mark.parametrize(("status", "kind"), [(200, Handled), (422, Park)])
def test_the_status_counts_though_the_rest_of_the_answer_never_comes(
    bus, endpoint, forwarded, status, kind
):
    forwarded(read_timeout="200ms")
    endpoint.status, endpoint.headers = status, {"Transfer-Encoding": "chunked"}
    endpoint.answer = b"no chunk\r\n"
    bus.put()

    assert [type(each) for each in bus.consume()] == [kind]


def test_only_what_is_there_is_read_of_an_answer_that_trickles(bus, endpoint, forwarded):
    forwarded(read_timeout="5s")
    endpoint.status, endpoint.headers = 422, {"Connection": "keep-alive"}
    endpoint.answer, endpoint.length = b"no", 400
    bus.put()
    began = time.monotonic()

    assert [type(each) for each in bus.consume()] == [Park]
    assert time.monotonic() - began < 4


def test_ids_that_no_header_can_hold_are_written_in_ascii(bus, endpoint, forwarded):
    forwarded(secret="whisper")
    bus.put(id="käse\n7", correlation_id="grüße")

    assert bus.consume() == [Handled()]

    ((_, headers, body),) = endpoint.requests
    assert headers["webhook-id"] == "k%C3%A4se%0A7"
    assert headers["Event-Correlation-Id"] == "gr%C3%BC%C3%9Fe"
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = base64.b64encode(hmac.digest(b"whisper", signed, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{digest}"


def test_an_endpoint_that_is_not_there_is_tried_again(bus, forwarded):
    forwarded(url=f"http://127.0.0.1:{free_port()}/")
    bus.put()

    assert bus.consume() == [Retry(delay=30.0)]
    assert Attempt.objects.get().error == "127.0.0.1 did not answer: ConnectionRefusedError"


def test_an_endpoint_that_does_not_answer_in_time_is_tried_again(bus, endpoint, forwarded):
    forwarded(read_timeout="100ms")
    endpoint.go_on.clear()
    bus.put()

    assert bus.consume() == [Retry(delay=30.0)]
    assert Attempt.objects.get().error == "127.0.0.1 did not answer: TimeoutError"


@pytest.mark.parametrize(
    ("start", "outcome"),
    [(b"HTTP/1.1 20", Retry(delay=30.0)), (b"HTTP/1.1 200 OK\r\nX-Slow: ", Handled())],
)
def test_an_answer_that_arrives_byte_by_byte_ends_with_the_timeout(
    bus, endpoint, forwarded, start, outcome
):
    forwarded(read_timeout="500ms")
    endpoint.answer, endpoint.trickle = start, b"0"
    bus.put()
    began = time.monotonic()

    assert bus.consume() == [outcome]
    assert time.monotonic() - began < 5
    errors = [each.error for each in Attempt.objects.all()]
    assert errors in ([], ["127.0.0.1 did not answer: TimeoutError"])


@table(
    "url",
    [
        *["ftp://x/", "shop.example", "http://", "https://user:pass@x/", "https://x/#top"],
        *["https://x/bücher", "https://x/a b", "https://x/a\nb"],
    ],
)
def test_what_is_no_endpoint_is_refused_without_repeating_it(url):
    with pytest.raises(ValueError, match="needs a URL without a login") as refusal:
        forward("order.*", url, name="hook")

    assert url not in str(refusal.value)
