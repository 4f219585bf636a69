"""The frames of a publish as bytes. pika makes the same ones, of objects and one by one."""

from __future__ import annotations

import struct
from functools import lru_cache

_METHOD, _HEADER, _BODY = 1, 2, 3
_BASIC, _PUBLISH, _MANDATORY = 60, 40, 1
_END = b"\xce"
_HEAD = struct.Struct(">BHI")
_CONTENT = struct.Struct(">HHQ")
#: What a frame has beside its payload.
_AROUND = _HEAD.size + len(_END)


@lru_cache(maxsize=1024)
def publish_method(exchange: str, routing_key: str) -> bytes:
    """Return the payload of a mandatory basic.publish."""
    names = b"".join(
        bytes([len(name)]) + name for name in (exchange.encode(), routing_key.encode())
    )
    return struct.pack(">HHH", _BASIC, _PUBLISH, 0) + names + bytes([_MANDATORY])


def publish_frames(
    channel: int, method: bytes, properties: bytes, body: bytes, frame_max: int
) -> bytes:
    """Return everything that publishing *body* writes to the socket."""
    content = _CONTENT.pack(_BASIC, 0, len(body)) + properties
    frames = [
        _HEAD.pack(_METHOD, channel, len(method)), method, _END,
        _HEAD.pack(_HEADER, channel, len(content)), content, _END,
    ]  # fmt: skip
    most = frame_max - _AROUND
    for start in range(0, len(body), most):
        piece = body[start : start + most]
        frames += [_HEAD.pack(_BODY, channel, len(piece)), piece, _END]
    return b"".join(frames)
