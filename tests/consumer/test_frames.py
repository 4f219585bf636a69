"""How far it is from a delivery to the handler."""

from __future__ import annotations

import sys
from pathlib import Path

import django_eventbus
from django_eventbus import publish

OURS = str(Path(django_eventbus.__file__).parent)
MOST = 7


def our_frames() -> list[str]:
    """Return the functions of the package on the stack, the outermost first."""
    frames, frame = [], sys._getframe(1)
    while frame:
        if frame.f_code.co_filename.startswith(OURS):
            frames.append(frame.f_code.co_qualname)
        frame = frame.f_back
    return frames[::-1]


def test_a_handler_is_at_most_seven_calls_away_from_consume(bus):
    seen = []

    @bus.subscribe("order.placed")
    def handler(event):
        seen.extend(our_frames())

    publish("order.placed")
    bus.relay()
    bus.consume()

    assert seen[0] == "Consumer.consume"
    assert len(seen) <= MOST, " → ".join(seen)
