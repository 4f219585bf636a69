"""Send metrics to StatsD, as lines with tags, by UDP and without an answer."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from django_eventbus.conf import conf
from django_eventbus.conf.parsers import StatsdServer
from django_eventbus.durations import Throttle
from django_eventbus.exceptions import BadSetting
from django_eventbus.observability.metric_names import Kind, Metric, MetricValue
from django_eventbus.observability.metrics import Meter

#: The bytes of a datagram that networks do not split.
_MAX_BYTES = 1432
#: Seconds until the host name is resolved again.
_RESOLVE_EVERY = 60.0
_KINDS = {Kind.COUNTER: "c", Kind.HISTOGRAM: "h", Kind.GAUGE: "g"}
#: Characters that have a meaning in a line, or could break it.
_UNSAFE = re.compile(r"[^\w.:/*-]")


def connect() -> Meter | None:
    """Send the metrics of this process to STATSD, if it is set."""
    try:
        server = conf.statsd
    except BadSetting:
        # A system check reports the error.
        return None
    if server is None:
        return None
    meter = Meter(StatsdSink(server))
    meter.connect()
    return meter


class StatsdSink:
    """Sends datagrams without waiting; one that cannot be sent is lost. Safe from many threads."""

    def __init__(self, server: StatsdServer) -> None:
        self.server = server
        self._channel: tuple[socket.socket, Any] | None = None
        self._resolutions = Throttle(_RESOLVE_EVERY)
        #: The text before and after the value, by metric and labels.
        self._frames: dict[tuple[Metric, tuple[str, ...]], tuple[str, str]] = {}
        self._is_address = self._resolve(socket.AI_NUMERICHOST)
        self._resolve_if_due()

    def write(self, values: Iterable[MetricValue]) -> None:
        self._resolve_if_due()
        if self._channel is None:
            return
        channel, address = self._channel
        for datagram in _packed([self._line(*each) for each in values]):
            # Ignore a full buffer and an unreachable host: metrics must not delay a delivery.
            with suppress(OSError):
                channel.sendto(datagram, address)

    def close(self) -> None:
        if self._channel:
            self._channel[0].close()

    def _line(self, metric: Metric, labels: tuple[str, ...], value: float) -> bytes:
        frame = self._frames.get((metric, labels))
        if frame is None:
            frame = self._frames[metric, labels] = self._frame(metric, labels)
        number = value if isinstance(value, int) else f"{value:.6f}"
        return f"{frame[0]}{number}{frame[1]}".encode()

    def _frame(self, metric: Metric, labels: tuple[str, ...]) -> tuple[str, str]:
        prefix = f"{self.server.prefix}." if self.server.prefix else ""
        named = zip(metric.labels, labels, strict=True)
        tags = ",".join(f"{name}:{_UNSAFE.sub('_', value)}" for name, value in named if value)
        return f"{prefix}{metric.name}:", f"|{_KINDS[metric.kind]}|#{tags}"

    def _resolve_if_due(self) -> None:
        # In a thread: a request to an unreachable name server lasts seconds.
        if not self._is_address and self._resolutions.is_due():
            threading.Thread(target=self._resolve, name="statsd", daemon=True).start()

    def _resolve(self, flags: int = 0) -> bool:
        host, port = self.server.host, self.server.port
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=flags)
        except OSError:
            return False
        # IPv4 first, as other clients of StatsD do: a name may have both.
        family, kind, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
        self._channel = self._socket(family, kind), address
        return True

    def _socket(self, family: int, kind: int) -> socket.socket:
        # The same socket if possible: another thread may be about to use it.
        if self._channel and self._channel[0].family == family:
            return self._channel[0]
        made = socket.socket(family, kind)
        made.setblocking(False)
        return made


def _packed(lines: list[bytes]) -> Iterator[bytes]:
    """Yield as few datagrams as the lines need."""
    packed = b""
    for line in lines:
        if packed and len(packed) + 1 + len(line) > _MAX_BYTES:
            yield packed
            packed = b""
        packed = b"\n".join((packed, line)) if packed else line
    if packed:
        yield packed
