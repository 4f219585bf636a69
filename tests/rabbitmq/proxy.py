"""A TCP proxy that can fall silent, and cut every connection that goes through it."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Proxy:
    """Listens on a port of its own, and carries bytes to and from *upstream*."""

    def __init__(self, upstream: tuple[str, int]) -> None:
        self.upstream = upstream
        #: Whether what the broker says is thrown away.
        self.is_silent = False
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    def cut(self) -> None:
        """Close every connection, on both sides."""
        while self._sockets:
            end(self._sockets.pop())

    def close(self) -> None:
        end(self._listener)
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self.upstream)
                self._sockets += [near, far]
                for ends in ((near, far, False), (far, near, True)):
                    threading.Thread(target=self._carry, args=ends, daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, is_broker: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if not (is_broker and self.is_silent):
                    target.sendall(data)
        end(source)
        end(target)


def end(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
