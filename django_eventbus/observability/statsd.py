"""Measurements as lines of StatsD with tags, sent by UDP and forgotten."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from django_eventbus.conf import conf
from django_eventbus.exceptions import BadSetting
from django_eventbus.intervals import Interval
from django_eventbus.observability.measurements import Kind, Measured, Measurement
from django_eventbus.observability.metrics import Meter
from django_eventbus.setting_values import StatsdServer

#: Bytes that pass a network of today in one piece.
_MOST_BYTES = 1432
#: Seconds until a name is looked up again.
_LOOK_UP_EVERY = 60.0
_KINDS = {Kind.COUNTER: "c", Kind.HISTOGRAM: "h", Kind.GAUGE: "g"}
#: What has a meaning in a line, or could break it.
_UNSAFE = re.compile(r"[^\w.:/*-]")


def connect() -> Meter | None:
    """Send what happens in this process to STATSD, if that is set."""
    try:
        server = conf.statsd
    except BadSetting:
        # The checks tell what is wrong with it.
        return None
    if server is None:
        return None
    meter = Meter(StatsdSink(server))
    meter.connect()
    return meter


class StatsdSink:
    """Sends datagrams without waiting; what cannot be sent is lost. Safe from many threads."""

    def __init__(self, server: StatsdServer) -> None:
        self.server = server
        self._channel: tuple[socket.socket, Any] | None = None
        self._look_ups = Interval(_LOOK_UP_EVERY)
        #: What stands before and after the value, by measurement and labels.
        self._frames: dict[tuple[Measurement, tuple[str, ...]], tuple[str, str]] = {}
        self._is_address = self._find(socket.AI_NUMERICHOST)
        self._look_up_if_due()

    def write(self, measured: Iterable[Measured]) -> None:
        self._look_up_if_due()
        if self._channel is None:
            return
        channel, address = self._channel
        for datagram in _packed([self._line(*each) for each in measured]):
            # A full buffer and an unreachable host alike: nobody waits for a measurement.
            with suppress(OSError):
                channel.sendto(datagram, address)

    def close(self) -> None:
        if self._channel:
            self._channel[0].close()

    def _line(self, measurement: Measurement, labels: tuple[str, ...], value: float) -> bytes:
        frame = self._frames.get((measurement, labels))
        if frame is None:
            frame = self._frames[measurement, labels] = self._frame(measurement, labels)
        number = value if isinstance(value, int) else f"{value:.6f}"
        return f"{frame[0]}{number}{frame[1]}".encode()

    def _frame(self, measurement: Measurement, labels: tuple[str, ...]) -> tuple[str, str]:
        prefix = f"{self.server.prefix}." if self.server.prefix else ""
        named = zip(measurement.labels, labels, strict=True)
        tags = ",".join(f"{name}:{_UNSAFE.sub('_', value)}" for name, value in named if value)
        return f"{prefix}{measurement.name}:", f"|{_KINDS[measurement.kind]}|#{tags}"

    def _look_up_if_due(self) -> None:
        # In a thread: a name server that is away takes seconds, and this may be a delivery's.
        if not self._is_address and self._look_ups.is_due():
            threading.Thread(target=self._find, name="statsd", daemon=True).start()

    def _find(self, flags: int = 0) -> bool:
        host, port = self.server.host, self.server.port
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=flags)
        except OSError:
            return False
        # The older family first, as other clients of StatsD do: a name may have both.
        family, kind, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
        self._channel = self._socket(family, kind), address
        return True

    def _socket(self, family: int, kind: int) -> socket.socket:
        # The same one again if it can be: another thread may be about to use it.
        if self._channel and self._channel[0].family == family:
            return self._channel[0]
        made = socket.socket(family, kind)
        made.setblocking(False)
        return made


def _packed(lines: list[bytes]) -> Iterator[bytes]:
    """Yield as few datagrams as the lines need."""
    packed = b""
    for line in lines:
        if packed and len(packed) + 1 + len(line) > _MOST_BYTES:
            yield packed
            packed = b""
        packed = b"\n".join((packed, line)) if packed else line
    if packed:
        yield packed
