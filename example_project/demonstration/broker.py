"""Remove everything that the demo has declared on the broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from django_eventbus import transports
from django_eventbus.conf import conf
from django_eventbus.exceptions import BrokerRefused, Unavailable
from django_eventbus.subscriptions.queue_specs import queue_specs


@contextmanager
def left_as_it_was() -> Iterator[None]:
    """Delete, at the end, everything that the shop has declared in the namespace of this demo."""
    try:
        yield
    finally:
        # If the broker is away or refused the login, nothing can be deleted.
        with suppress(Unavailable, BrokerRefused):
            transports.connect(conf.broker_url).remove(queue_specs())
