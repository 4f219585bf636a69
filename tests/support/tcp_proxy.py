"""A TCP proxy that cuts connections, mutes the server, or leaves them half-open."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Link:
    """One connection through the proxy: two sockets and a thread for each direction."""

    def __init__(self, client: socket.socket, server: socket.socket | None, said: bytearray | None):
        #: What the client said, if anybody wants to know.
        self.said = said
        self.is_silent = server is None
        #: Whether what the server says is thrown away.
        self.is_mute = False
        self.client = client
        self.sockets = [client, server] if server else [client]
        for source, sink in ((client, server), (server, client)):
            if source:
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket | None) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if self.said is not None and source is self.client:
                    self.said += data
                is_heard = not (self.is_mute and sink is self.client)
                if sink and is_heard and not self.is_silent:
                    sink.sendall(data)
        # The other end of a silent link hears nothing, not even that this one has gone.
        if not self.is_silent:
            self.cut()

    @property
    def is_open(self) -> bool:
        return all(each.fileno() != -1 for each in self.sockets)

    def cut(self) -> None:
        for each in self.sockets:
            end(each)


def end(each: socket.socket) -> None:
    """Close a socket on both sides."""
    with suppress(OSError):
        # Closing alone would leave the thread that reads from it waiting for ever.
        each.shutdown(socket.SHUT_RDWR)
    each.close()


class TcpProxy:
    """Forwards to *port* until told otherwise. Listens on a port of its own."""

    def __init__(self, port: int, host: str = "127.0.0.1"):
        self.target = (host, port)
        self.links: list[Link] = []
        #: Everything that clients said; None: nobody listens.
        self.said: bytearray | None = None
        #: How many connections were ever made.
        self.accepted = 0
        self._is_silent = False
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=50)
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> TcpProxy:
        return self

    def __exit__(self, *_: object) -> None:
        end(self._listener)
        self.cut()

    @property
    def url(self) -> str:
        """Where a broker behind it is reached."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    def cut(self) -> None:
        """Cut every connection; new ones are taken at once."""
        while self.links:
            self.links.pop().cut()

    def go_silent(self) -> None:
        """Accept and swallow: all sockets stay open, and nothing comes through any more."""
        self._is_silent = True
        for link in self.links:
            link.is_silent = True

    def mute(self) -> None:
        """Throw away what the server says, on the connections that there are."""
        for link in self.links:
            link.is_mute = True

    def come_back(self) -> None:
        """Forward new connections again; those that went silent stay so."""
        self._is_silent = False

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.accepted += 1
                self._take(client)

    def _take(self, client: socket.socket) -> None:
        try:
            server = None if self._is_silent else socket.create_connection(self.target, 5)
        except OSError:
            client.close()
            return
        if server:
            server.settimeout(None)
        self.links.append(Link(client, server, self.said))
