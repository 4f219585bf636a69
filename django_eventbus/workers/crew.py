"""Threads that start, stop and fail together."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from django.db import connections

from django_eventbus.exceptions import EventBusError
from django_eventbus.outages import OutageWatch
from django_eventbus.subscriptions.queue_specs import queue_specs
from django_eventbus.transports.contract import Transport
from django_eventbus.workers.silent_databases import end_if_silent

logger = logging.getLogger("django_eventbus.workers")

#: Seconds between two checks for signals in the main thread.
_TICK = 0.2


class LoopFailed(EventBusError):
    """A loop ended with an error; the log has the traceback of an unexpected one."""


class Crew:
    """Named loops, each in a thread, that stop together."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failure: tuple[str, BaseException] | None = None
        self._failing = threading.Lock()
        #: Not the same as stop, which a limit or a failed loop sets too.
        self._was_signalled = False

    def add(self, name: str, loop: Callable[[], None]) -> None:
        thread = threading.Thread(target=self._watch, args=(name, loop), name=name, daemon=True)
        self._threads.append(thread)

    def run(self) -> None:
        """Run all loops to their end; raise LoopFailed if one of them failed."""
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            while thread.is_alive():
                thread.join(_TICK)
        if self._failure:
            name, error = self._failure
            words = str(error) if isinstance(error, EventBusError) else f"{type(error).__name__}."
            raise LoopFailed(f"The {name} stopped: {words}") from error

    def _watch(self, name: str, loop: Callable[[], None]) -> None:
        try:
            loop()
        except EventBusError as error:
            # The broker refused something: no traceback, and only once for all loops.
            if self._fail(name, error):
                logger.critical("The %s stopped: %s", name, error)
        except BaseException as error:
            logger.critical("The %s stopped because of an unexpected error.", name, exc_info=True)
            self._fail(name, error)
        finally:
            connections.close_all()

    def _fail(self, name: str, error: BaseException) -> bool:
        """Stop all loops; return whether this failure is the first."""
        with self._failing:
            is_first = self._failure is None
            self._failure = self._failure or (name, error)
        self.stop.set()
        return is_first

    @contextmanager
    def stopping_on_signals(self) -> Iterator[None]:
        """Finish the current work on SIGTERM or SIGINT; stop at once on the second signal."""
        # Only the main thread can set signal handlers; tests may call commands in other threads.
        numbers = (signal.SIGTERM, signal.SIGINT) if _is_main_thread() else ()
        former = {number: signal.signal(number, self._on_signal) for number in numbers}
        ended = threading.Event()
        arguments = (lambda: self._was_signalled), ended
        if numbers:
            threading.Thread(target=end_if_silent, args=arguments, daemon=True).start()
        try:
            yield
        finally:
            ended.set()
            for number, handler in former.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._was_signalled:
            os._exit(128 + number)
        self._was_signalled = True
        self.stop.set()
        os.write(2, b"Finishing the current work. A second signal stops at once.\n")


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def close_broken_connections() -> None:
    """Close the database connections of this thread that an error made unusable."""
    # Not close_old_connections(): with the default CONN_MAX_AGE of 0 it would open a new
    # connection for each message. It is called when no message is due.
    for connection in connections.all(initialized_only=True):
        if connection.errors_occurred:
            connection.close_if_unusable_or_obsolete()


def declare(transport: Transport, stop: threading.Event) -> None:
    """Declare the queues of this project, and wait for the broker if necessary."""
    watch = OutageWatch(Transport, "transport")
    watch.succeed(lambda: transport.declare(queue_specs()), stop)
