"""TLS: what BROKER_TLS says, and why a server hung up."""

from __future__ import annotations

import os
import socket
import ssl
from typing import Any

from django_eventbus.conf import conf
from django_eventbus.exceptions import BadSetting

#: How long a server that has accepted us is given to change its mind.
_LISTEN = 2.0


def context() -> ssl.SSLContext:
    """Return what BROKER_TLS says as a context, or raise BadSetting. Verifies by default."""
    files: dict[str, Any] = conf.broker_tls
    for name in ("CA", "CERTIFICATE", "KEY"):
        _refuse_unreadable(name, files.get(name))
    made = _trusting(files.get("CA"))
    if files.get("CERTIFICATE"):
        _identify(made, files["CERTIFICATE"], files.get("KEY"))
    if files.get("VERIFY") is False:
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    return made


def _refuse_unreadable(name: str, file: str | None) -> None:
    try:
        with open(file or os.devnull, "rb"):
            pass
    except OSError as error:
        raise BadSetting("BROKER_TLS", f"{name} {file}: {error.strerror}.") from error


def _trusting(authorities: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authorities)
    except ssl.SSLError as error:
        raise BadSetting("BROKER_TLS", f"CA is no certificate: {error.reason}.") from error


def _identify(made: ssl.SSLContext, certificate: str, key: str | None) -> None:
    try:
        made.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        words = getattr(error, "reason", "") or error
        problem = f"CERTIFICATE and KEY are no pair that can be used: {words}."
        raise BadSetting("BROKER_TLS", problem) from error


def _no_password() -> str:
    # Without this, OpenSSL asks for it on the terminal, and the worker stands still.
    raise ValueError("the key is encrypted")


def parting_words(host: str, port: int, made: ssl.SSLContext) -> OSError | None:
    """Shake hands with a server and listen to why it hangs up; None if it does not."""
    # In TLS 1.3 a client certificate is refused after the handshake, by an alert. Who writes
    # first, as AMQP does, may find the socket closed and never read it.
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
