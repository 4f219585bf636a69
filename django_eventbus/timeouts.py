"""Bound how long a handler may take."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections

from django_eventbus.exceptions import HandlerTimeout
from django_eventbus.subscriptions import Subscription

logger = logging.getLogger(__name__)

#: How many times its timeout a handler has to come back, before the process ends.
PATIENCE = 2
#: EX_TEMPFAIL: a supervisor starts the process again.
EXIT_CODE = 75


@contextmanager
def limited(subscription: Subscription) -> Iterator[None]:
    """Raise HandlerTimeout after the block if it took longer than the subscription allows."""
    if subscription.timeout is None:
        yield
        return
    _limit_statements(subscription, subscription.timeout)
    began = time.monotonic()
    watchdog = threading.Timer(subscription.timeout * PATIENCE, _end_process, [subscription.name])
    watchdog.daemon = True
    watchdog.start()
    try:
        yield
    finally:
        watchdog.cancel()
    # Without a transaction there is nothing to undo: what it did late, it did.
    if subscription.atomic and time.monotonic() - began > subscription.timeout:
        raise HandlerTimeout(
            f"the handler took longer than its timeout of {subscription.timeout:g} s"
        )


def _limit_statements(subscription: Subscription, seconds: float) -> None:
    connection = connections[subscription.using]
    if connection.vendor == "postgresql" and connection.in_atomic_block:
        with connection.cursor() as cursor:
            limit = f"{round(seconds * 1000)}ms"
            cursor.execute("SELECT set_config('statement_timeout', %s, true)", [limit])


def _end_process(name: str) -> None:
    # No thread can be stopped from outside, and this one may hold locks: the process has to go.
    # Its messages come again, and one that never lets its handler return is parked by START_LIMIT.
    logger.critical("The handler of %s did not come back; ending the process.", name)
    os._exit(EXIT_CODE)
