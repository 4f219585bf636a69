"""Tell a refusal, which waiting cannot help, from an outage. Pure."""

from __future__ import annotations

import re

from django_eventbus.transports.rabbitmq.parameters import BrokerAddress

#: Access refused, and not allowed: the login, or the virtual host.
_LOGIN = re.compile(r"ConnectionClosedByBroker: \((403|530)\)")
_LOGIN_CODES = (403, 530)
#: How OpenSSL names what is wrong; pika hands its words on, not always its error.
_TLS = {
    "CERTIFICATE_VERIFY_FAILED": "our side does not trust its certificate",
    "CERTIFICATE_REQUIRED": "it wants a client certificate, and BROKER_TLS names none",
    "ALERT_UNKNOWN_CA": "it does not trust our client certificate",
    "ALERT_BAD_CERTIFICATE": "it does not take our client certificate",
    "ALERT_CERTIFICATE": "it does not take our client certificate",
    "ALERT_HANDSHAKE_FAILURE": "the two sides agree on no TLS, or it wants a client certificate",
    "WRONG_VERSION_NUMBER": "no TLS is spoken there",
}
_REASON = re.compile(r"certificate verify failed: ([^'\"(,]*)")


def refusal(error: BaseException | None, address: BrokerAddress) -> str:
    """Return what the broker at *address* said no to, as a sentence; "" if it did not answer."""
    # A socket that closes during the login is no refusal: RabbitMQ says why before it closes,
    # and a broker that dies just then must be waited for.
    words = _all_words(error)
    if getattr(error, "reply_code", 0) in _LOGIN_CODES or _LOGIN.search(words):
        return (
            f"The broker at {address.words} refused the login or the virtual host "
            f"for the user {address.user!r}."
        )
    for name, meaning in _TLS.items():
        if name in words:
            return f"No TLS connection to the broker at {address.words}: {meaning}{_why(words)}."
    return ""


def _why(words: str) -> str:
    found = _REASON.search(words)
    return f" ({found[1].strip().rstrip('.')})" if found else ""


def _all_words(error: BaseException | None) -> str:
    """Return the words of *error* and of all that it was made of."""
    if error is None:
        return ""
    inner = [*getattr(error, "exceptions", ()), getattr(error, "exception", None), error.__cause__]
    inner += [each for each in error.args if isinstance(each, BaseException)]
    return " ".join([repr(error), *(_all_words(each) for each in inner if each)])
