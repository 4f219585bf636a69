"""A connection with an I/O thread of its own, and buffered writes."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Generic, TypeVar

import pika
from pika import exceptions as amqp

from django_eventbus.conf import conf
from django_eventbus.exceptions import BrokerRefused, BrokerUnavailable
from django_eventbus.transports.rabbitmq.parameters import (
    BrokerAddress,
    parameters_of,
    refusal,
    tls_error,
    version_of,
)

#: The maximum size of the buffer in bytes, because many large messages could fill the memory.
_MOST = 256 * 1024

logger = logging.getLogger("django_eventbus.transports.rabbitmq")
T = TypeVar("T")
#: Seconds that an orderly close may take. A broker with an alarm does not read the request.
_CLOSE_TIMEOUT = 5.0
#: The same for an ordered queue, whose next consumer waits for it.
_ORDERED_CLOSE_TIMEOUT = 1.0


class BufferedConnection(pika.SelectConnection):
    """
    A connection that can write many frames at once.

    pika writes the three frames of a message one by one, and each write releases the GIL: with
    a busy thread, acquiring it again takes longer than the rest of the work.
    """

    _is_gathering = False

    @contextmanager
    def buffered(self) -> Iterator[None]:
        """Write everything that the block sends at its end."""
        self._frames: list[bytes] = []
        self._size = 0
        self._is_gathering = True
        try:
            yield
        finally:
            self._is_gathering = False
            self._write()

    def close_uncancelled(self) -> None:
        """Close without cancelling the consumers first, as close() would."""
        self._error = amqp.ConnectionClosedByClient(200, "Normal shutdown")
        self._send_connection_close(200, "Normal shutdown")  # type: ignore[attr-defined]

    def write(self, frames: bytes) -> None:
        """Write frames that were not made by pika."""
        self._adapter_emit_data(frames)

    def _adapter_emit_data(self, data: bytes) -> None:
        if not self._is_gathering:
            super()._adapter_emit_data(data)  # type: ignore[misc]
            return
        self._frames.append(data)
        self._size += len(data)
        if self._size > _MOST:
            self._write()

    def _write(self) -> None:
        data, self._frames, self._size = b"".join(self._frames), [], 0
        # If the connection has ended in the meantime, its callbacks report it.
        if data and self.is_open:
            super()._adapter_emit_data(data)  # type: ignore[misc]


# pika logs every lost connection with a traceback, and returned messages with their bodies.
logging.getLogger("pika").setLevel(logging.CRITICAL)


class Reply(Generic[T]):
    """The result of a request to the broker: the first answer, or the first failure."""

    def __init__(self) -> None:
        self.came = threading.Event()
        self._answers: list[T] = []
        self._errors: list[Exception] = []

    def answer(self, value: T) -> None:
        self._answers.append(value)
        self.came.set()

    def fail(self, error: Exception) -> None:
        self._errors.append(error)
        self.came.set()

    def value(self) -> T:
        if self._answers:
            return self._answers[0]
        raise self._errors[0]


class BrokerConnection:
    """
    One AMQP connection and its I/O thread.

    Only that thread may use objects of pika; other threads use call() and ask().
    """

    def __init__(self, address: BrokerAddress, purpose: str, *, is_ordered: bool = False) -> None:
        self.address = address
        self.purpose = purpose
        self.is_ordered = is_ordered
        self.blocked = False
        #: Called on the I/O thread, once, when the connection is gone.
        self.on_lost: Callable[[Exception], None] = lambda error: None
        #: Called on the I/O thread when the broker stops accepting messages.
        self.on_blocked: Callable[[Exception], None] = lambda error: None
        #: Callbacks for the end of the connection, from callers that wait for an answer.
        self._asking: set[Callable[[Exception], None]] = set()
        self._connection: Any = None
        self._thread: threading.Thread | None = None
        self._opened = threading.Event()
        self._error: BaseException | None = None
        self._is_open = False

    @property
    def is_open(self) -> bool:
        return self._is_open

    @property
    def is_awaited_by_others(self) -> bool:
        """Whether a caller other than this one waits for an answer."""
        return len(self._asking) > 1

    @property
    def frame_max(self) -> int:
        return int(self._connection.params.frame_max)

    @property
    def server_properties(self) -> dict[str, Any]:
        """The properties that the broker reports."""
        return dict(self._connection.server_properties or {})

    @property
    def server_version(self) -> tuple[int, ...]:
        """The version that the broker reports; () if it is not known."""
        return version_of(str(self.server_properties.get("version", "")))

    def open(self) -> None:
        """Connect to the first host that answers. Raise BrokerUnavailable or BrokerRefused."""
        refused = ""
        hosts = list(parameters_of(self.address, self.purpose))
        # In random order: a node that accepts connections but does not answer must not be the
        # first choice each time.
        random.shuffle(hosts)
        for parameters in hosts:
            if self._connect(parameters):
                return
            error = self._error
            if parameters.ssl_options and isinstance(error, amqp.IncompatibleProtocolError):
                place = parameters.host, parameters.port
                error = tls_error(*place, parameters.ssl_options.context) or error
            refused = refusal(error, self.address) or refused
        if refused:
            raise BrokerRefused(refused)
        raise BrokerUnavailable(f"The broker at {self.address.words} does not answer.")

    def _connect(self, parameters: pika.ConnectionParameters) -> bool:
        self._opened.clear()
        self._error = None
        self._thread = threading.Thread(
            target=self._run, args=(parameters,), name=f"amqp {self.purpose}", daemon=True
        )
        self._thread.start()
        if not self._opened.wait(conf.broker_options.connect_timeout * 2):
            self.drop()
            self._connection, self._is_open = None, False
        return self._is_open

    def _run(self, parameters: pika.ConnectionParameters) -> None:
        try:
            self._connection = connection = BufferedConnection(
                parameters,
                on_open_callback=self._on_open,
                on_open_error_callback=self._on_end,
                on_close_callback=self._on_end,
            )
        except Exception as error:
            self._end(error)
            return
        connection.add_on_connection_blocked_callback(self._on_blocked)
        connection.add_on_connection_unblocked_callback(self._on_unblocked)
        loop = connection.ioloop
        try:
            loop.start()
        except Exception as error:
            # A callback raised it. Without its loop, the connection would hang forever. Before the
            # connection is open, pika raises ValueError for a socket that was reset.
            if self._is_open:
                logger.critical("The I/O thread of %s failed.", self.purpose, exc_info=True)
            self._on_end(connection, error)
        finally:
            loop.close()

    def _on_open(self, connection: Any) -> None:
        if connection is self._connection:
            self._is_open = True
            self._opened.set()

    def _on_end(self, connection: Any, reason: BaseException) -> None:
        connection.ioloop.stop()
        # A slow attempt may end when open() is already trying the next host.
        if connection is self._connection:
            self._end(reason)

    def _end(self, reason: BaseException) -> None:
        was_open, self._is_open, self._error = self._is_open, False, reason
        self._opened.set()
        lost = BrokerUnavailable(f"The connection to {self.address.words} was lost.")
        for fail in list(self._asking):
            fail(lost)
        if was_open:
            self.on_lost(lost)

    def raise_if_blocked(self) -> None:
        """Raise BrokerUnavailable during an alarm: the broker would not read the messages."""
        if self.blocked:
            raise self._alarm()

    def _alarm(self) -> BrokerUnavailable:
        words = f"The broker at {self.address.words} has raised an alarm and accepts no messages."
        return BrokerUnavailable(words, kind="blocked")

    def _on_blocked(self, connection: Any, frame: Any) -> None:
        self.blocked = True
        logger.warning("The broker blocks publishing (%s).", self.purpose)
        self.on_blocked(self._alarm())

    def _on_unblocked(self, connection: Any, frame: Any) -> None:
        self.blocked = False
        logger.warning("The broker accepts messages again (%s).", self.purpose)

    def channel_lost(self, reason: BaseException) -> BrokerUnavailable:
        """Return the error for a closed channel: a lost connection closes its channels too."""
        if isinstance(reason, amqp.AMQPConnectionError) or not self._connection.is_open:
            return BrokerUnavailable(f"The connection to {self.address.words} was lost.")
        return BrokerUnavailable(f"The broker closed the channel: {reason}", kind="channel")

    def call(self, work: Callable[[], None]) -> None:
        """Run *work* on the I/O thread, soon."""
        if not self._is_open:
            raise BrokerUnavailable(f"There is no connection to {self.address.words}.")
        try:
            self._connection.ioloop.add_callback_threadsafe(work)
        except Exception as error:
            raise BrokerUnavailable("The connection is being closed.") from error

    def ask(
        self, question: Callable[[Callable[[T], None], Callable[[Exception], None]], None]
    ) -> T:
        """Run *question* on the I/O thread and wait for its answer or failure."""
        reply: Reply[T] = Reply()

        def put() -> None:
            try:
                question(reply.answer, reply.fail)
            except amqp.AMQPError as error:
                # The channel or the connection was closed just before.
                reply.fail(self.channel_lost(error))

        with self.notifying(reply.fail):
            self.call(put)
            if not reply.came.wait(conf.broker_options.confirm_timeout):
                self.drop()
                words = f"The broker at {self.address.words} did not answer in time."
                raise BrokerUnavailable(words, kind="io")
        return reply.value()

    @contextmanager
    def notifying(self, fail: Callable[[Exception], None]) -> Iterator[None]:
        """Call *fail* if the connection ends, because work that waits in call() would never run."""
        self._asking.add(fail)
        try:
            yield
        finally:
            self._asking.discard(fail)

    def channel(self) -> Any:
        """Open a channel."""
        return self.ask(lambda answer, fail: self.new_channel(answer))

    def buffered(self) -> AbstractContextManager[None]:
        """Write everything that the block sends at once; on the I/O thread only."""
        buffered: AbstractContextManager[None] = self._connection.buffered()
        return buffered

    def write(self, frames: bytes) -> None:
        """Write whole frames; on the I/O thread only."""
        self._connection.write(frames)

    def new_channel(self, on_open: Callable[[Any], None]) -> None:
        """Open a channel; on the I/O thread only."""
        self._connection.channel(on_open_callback=on_open)

    def later(self, seconds: float, work: Callable[[], None]) -> None:
        """Run *work* in *seconds*; on the I/O thread only."""
        self._connection.ioloop.call_later(seconds, work)

    def drop(self) -> None:
        """Drop the connection without an orderly close, which the broker might not answer."""
        if connection := self._connection:
            try:
                connection.ioloop.add_callback_threadsafe(lambda: _cut(connection))
            except Exception:
                logger.debug("The connection was lost before it was dropped.")

    def close(self) -> None:
        """Close the connection in order, or drop it after a timeout."""
        self.on_lost = lambda error: None
        if self._is_open:
            try:
                self.call(self._close_orderly)
            except BrokerUnavailable:
                logger.debug("The connection was lost before it was closed.")
        if self._thread and self._thread is not threading.current_thread():
            self._thread.join(_ORDERED_CLOSE_TIMEOUT if self.is_ordered else _CLOSE_TIMEOUT)
            if self._thread.is_alive():
                self.drop()
                self._thread.join(_CLOSE_TIMEOUT)

    def _close_orderly(self) -> None:
        if not self._connection.is_open:
            return
        if self.is_ordered:
            # After a basic.cancel, the broker would give the next message to the next consumer
            # before it has back the one that it has pushed to this consumer.
            self._connection.close_uncancelled()
        else:
            self._connection.close()


def _cut(connection: Any) -> None:
    if not connection.is_closed:
        connection._terminate_stream(amqp.ConnectionClosed(0, "cut"))
