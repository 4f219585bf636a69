"""Databases that go silent: the server neither answers nor closes its connections."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from django.db import connections

from django_eventbus.outages import is_away
from django_eventbus.subscriptions.subscription import registry

logger = logging.getLogger("django_eventbus.workers")

#: Options of libpq. Without them, a worker notices a connection that is dead without a reset after
#: two hours, or after a quarter of an hour if it was sending.
KEEPALIVES = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
#: Seconds between two checks of a process that was asked to stop, and for one answer.
_CHECK_EVERY = 5.0
#: So many checks in a row have to fail.
_MISSES = 2


def set_keepalives() -> None:
    """Set the options that the project has not set; connections that are open keep theirs."""
    for database in connections.settings.values():
        if database["ENGINE"].endswith(("postgresql", "postgis")):
            options = database.setdefault("OPTIONS", {})
            for name, value in KEEPALIVES.items():
                options.setdefault(name, value)


def end_if_silent(is_stopping: Callable[[], bool], ended: threading.Event) -> None:
    """
    End the process with 1 if it was asked to stop and a database does not answer.

    A thread that waits for such a database cannot be stopped, and its transaction cannot be
    committed: it is rolled back, and the message is delivered again.
    """
    misses = 0
    while not ended.wait(_CHECK_EVERY):
        silent = _silent_database() if is_stopping() else ""
        misses = misses + 1 if silent else 0
        if misses == _MISSES:
            logger.critical(
                "The database %r does not answer. The process ends without its current work.",
                silent,
            )
            os._exit(1)


def _silent_database() -> str:
    """Return a database that does not answer in time, or an empty string."""
    return next((alias for alias in registry.databases() if not _answers(alias)), "")


def _answers(alias: str) -> bool:
    answers: list[bool] = []
    # In a thread: a server that accepts connections and says nothing would keep the caller.
    probe = threading.Thread(target=lambda: answers.append(not is_away(alias)), daemon=True)
    probe.start()
    probe.join(_CHECK_EVERY)
    return any(answers)
