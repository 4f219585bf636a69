"""The frames of a publish as bytes. pika makes the same ones, of objects and one by one."""

from __future__ import annotations

import struct
from functools import lru_cache

_METHOD, _HEADER, _BODY = 1, 2, 3
_BASIC, _PUBLISH, _MANDATORY = 60, 40, 1
_END = b"\xce"
_HEAD = struct.Struct(">BHI")
#: The head of the header frame, and what comes before the properties there.
_CONTENT = struct.Struct(">BHIHHQ")
_BEFORE_PROPERTIES = _CONTENT.size - _HEAD.size
#: What a frame has beside its payload.
_AROUND = _HEAD.size + len(_END)


@lru_cache(maxsize=1024)
def method_frame(channel: int, exchange: str, routing_key: str) -> bytes:
    """Return the frame of a mandatory basic.publish."""
    names = b"".join(
        bytes([len(name)]) + name for name in (exchange.encode(), routing_key.encode())
    )
    method = struct.pack(">HHH", _BASIC, _PUBLISH, 0) + names + bytes([_MANDATORY])
    return _HEAD.pack(_METHOD, channel, len(method)) + method + _END


def publish_frames(
    channel: int, method: bytes, properties: bytes, body: bytes, frame_max: int
) -> bytes:
    """Return everything that publishing *body* writes to the socket, its *method* frame first."""
    size = _BEFORE_PROPERTIES + len(properties)
    head = _CONTENT.pack(_HEADER, channel, size, _BASIC, 0, len(body))
    most = frame_max - _AROUND
    if 0 < len(body) <= most:
        frame = _HEAD.pack(_BODY, channel, len(body))
        return b"".join((method, head, properties, _END, frame, body, _END))
    frames = [method, head, properties, _END]
    for start in range(0, len(body), most):
        piece = body[start : start + most]
        frames += [_HEAD.pack(_BODY, channel, len(piece)), piece, _END]
    return b"".join(frames)
