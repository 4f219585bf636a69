"""Connection parameters: BROKER_URL, TLS files, and errors of refused logins."""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pika

from django_eventbus.conf import conf
from django_eventbus.exceptions import BadSetting

#: Seconds to wait for an alert of the server after the TLS handshake.
_LISTEN = 2.0

#: The maximum size of a message that RabbitMQ can be configured to accept. A body over
#: MAX_BODY_BYTES is parked, so it has to be received.
_LARGEST_BODY = 512 * 1024 * 1024

_PORTS = {"amqp": 5672, "amqps": 5671}
#: The codes for "access refused" (the login) and "not allowed" (the virtual host).
_LOGIN = re.compile(r"ConnectionClosedByBroker: \((403|530)\)")
_LOGIN_CODES = (403, 530)
#: Parts of the error texts of OpenSSL. pika passes on the text, but not always the error.
_TLS = {
    "CERTIFICATE_VERIFY_FAILED": "the certificate of the broker is not trusted",
    "CERTIFICATE_REQUIRED": "the broker requires a client certificate, and CERTIFICATE is not set in "
    "TLS of BROKER_OPTIONS",
    "ALERT_UNKNOWN_CA": "the broker does not trust the client certificate",
    "ALERT_BAD_CERTIFICATE": "the broker does not accept the client certificate",
    "ALERT_CERTIFICATE": "the broker does not accept the client certificate",
    "ALERT_HANDSHAKE_FAILURE": "the TLS handshake failed, or the broker requires a client certificate",
    "WRONG_VERSION_NUMBER": "the port does not use TLS",
}
_REASON = re.compile(r"certificate verify failed: ([^'\"(,]*)")


def context() -> ssl.SSLContext:
    """Return the context for TLS of BROKER_OPTIONS, or raise BadSetting. It verifies by default."""
    files: dict[str, Any] = conf.broker_options.tls
    for name in ("CA", "CERTIFICATE", "KEY"):
        _require_readable(name, files.get(name))
    made = _trusting(files.get("CA"))
    if files.get("CERTIFICATE"):
        _identify(made, files["CERTIFICATE"], files.get("KEY"))
    if files.get("VERIFY") is False:
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    return made


def _require_readable(name: str, file: str | None) -> None:
    try:
        with open(file or os.devnull, "rb"):
            pass
    except OSError as error:
        problem = f"{name} {file} cannot be read: {error.strerror}."
        raise BadSetting("BROKER_OPTIONS", f"TLS: {problem}") from error


def _trusting(authorities: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authorities)
    except ssl.SSLError as error:
        raise BadSetting(
            "BROKER_OPTIONS", f"TLS: CA is not a certificate: {error.reason}."
        ) from error


def _identify(made: ssl.SSLContext, certificate: str, key: str | None) -> None:
    try:
        made.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        words = getattr(error, "reason", "") or error
        problem = f"CERTIFICATE and KEY cannot be used together: {words}."
        raise BadSetting("BROKER_OPTIONS", f"TLS: {problem}") from error


def _no_password() -> str:
    # Without this function, OpenSSL asks for the password on the terminal, and the worker hangs.
    raise ValueError("the key is encrypted")


def tls_error(host: str, port: int, made: ssl.SSLContext) -> OSError | None:
    """Connect by TLS and return the error with which the server closes the connection, if any."""
    # In TLS 1.3 a server rejects a client certificate with an alert after the handshake. A client
    # that writes first, as in AMQP, may find the socket closed and never read the alert.
    try:
        with (
            socket.create_connection((host, port), timeout=_LISTEN) as plain,
            made.wrap_socket(plain, server_hostname=host) as wrapped,
        ):
            wrapped.recv(1)
    except TimeoutError:
        return None
    except OSError as error:
        return error
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAddress:
    """The address of the broker, with the user and the virtual host."""

    scheme: str
    hosts: tuple[tuple[str, int], ...]
    user: str
    virtual_host: str
    password: str = field(repr=False)

    @property
    def words(self) -> str:
        """The address without the login, for messages."""
        places = ",".join(f"{host}:{port}" for host, port in self.hosts)
        return f"{self.scheme}://{places}/{self.virtual_host}"


def address_of(url: str) -> BrokerAddress:
    """Parse amqp://user:password@host:5672,other:5672/vhost, or raise BadSetting."""
    scheme, _, rest = url.partition("://")
    # Split at the last @, because a password may contain one. Not with urllib, because its errors
    # quote the part of a password that it parses as a port.
    credentials, at, places = rest.rpartition("@")
    hosts, slash, virtual_host = places.partition("/")
    if "?" in virtual_host:
        raise BadSetting(
            "BROKER_URL",
            "has options after a '?' (value not shown). Use BROKER_OPTIONS for options, and write "
            "'%3F' for a '?' in the virtual host.",
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
            "is not a valid URL (value not shown). Example: 'amqp://user:password@host:5672/vhost'. "
            "Percent-encode '/', '@' and ',' in the password, or use BROKER_PASSWORD.",
        )
    return name.strip("[]"), int(port)


def version_of(text: str) -> tuple[int, ...]:
    """Return the numbers of the version that a broker reports, for comparisons."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def parameters_of(address: BrokerAddress, purpose: str) -> Iterator[pika.ConnectionParameters]:
    """Yield the connection parameters of each host for pika."""
    is_tls = address.scheme == "amqps"
    for host, port in address.hosts:
        parameters = pika.ConnectionParameters(
            host=host,
            port=port,
            virtual_host=address.virtual_host,
            credentials=pika.PlainCredentials(address.user, address.password),
            heartbeat=round(conf.broker_options.heartbeat),
            socket_timeout=conf.broker_options.connect_timeout,
            stack_timeout=conf.broker_options.connect_timeout,
            ssl_options=pika.SSLOptions(context(), host) if is_tls else None,
            client_properties={"connection_name": process_name(purpose)},
        )
        # pika 1.5 closes the connection on a larger body, so the broker would send it for ever.
        if hasattr(parameters, "max_inbound_message_body_size"):
            parameters.max_inbound_message_body_size = _LARGEST_BODY
        yield parameters


def process_name(purpose: str) -> str:
    """Return service, purpose, host and process, as the management plugin shows them."""
    return f"{conf.service} {purpose} {socket.gethostname()}:{os.getpid()}"


def refusal(error: BaseException | None, address: BrokerAddress) -> str:
    """Return a sentence about the refusal of the broker at *address*; "" if it did not answer."""
    # A socket that closes during the login is an outage, not a refusal: RabbitMQ sends a reason
    # before it refuses a login.
    words = _full_text(error)
    if getattr(error, "reply_code", 0) in _LOGIN_CODES or _LOGIN.search(words):
        return (
            f"The broker at {address.words} refused the login or the virtual host "
            f"for the user {address.user!r}."
        )
    for name, meaning in _TLS.items():
        if name in words:
            details = _certificate_problem(words)
            return f"TLS failed with the broker at {address.words}: {meaning}{details}."
    return ""


def _certificate_problem(words: str) -> str:
    found = _REASON.search(words)
    return f" ({found[1].strip().rstrip('.')})" if found else ""


def _full_text(error: BaseException | None) -> str:
    """Return the text of *error* and of all errors in its arguments and causes."""
    if error is None:
        return ""
    inner = [*getattr(error, "exceptions", ()), getattr(error, "exception", None), error.__cause__]
    inner += [each for each in error.args if isinstance(each, BaseException)]
    return " ".join([repr(error), *(_full_text(each) for each in inner if each)])
