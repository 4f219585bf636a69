"""Our frames are those that pika would have written."""

from __future__ import annotations

import pika
from hypothesis import given
from hypothesis import strategies as st
from pika import frame, spec

from django_eventbus.transports.rabbitmq.frames import publish_frames, publish_method

names = st.text(max_size=60)
properties = st.builds(
    pika.BasicProperties,
    message_id=names,
    type=names,
    headers=st.dictionaries(names, st.one_of(names, st.integers(0, 2**31))),
    timestamp=st.integers(0, 2**40),
    delivery_mode=st.just(2),
)


def written_by_pika(channel, exchange, routing_key, properties, body, frame_max):
    """Return what Connection._send_message() writes."""
    method = spec.Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=True)
    frames = [
        frame.Method(channel, method).marshal(),
        frame.Header(channel, len(body), properties).marshal(),
    ]
    most = frame_max - spec.FRAME_HEADER_SIZE - spec.FRAME_END_SIZE
    pieces = [body[start : start + most] for start in range(0, len(body), most)]
    return b"".join([*frames, *(frame.Body(channel, piece).marshal() for piece in pieces)])


@given(st.integers(1, 2047), names, names, properties, st.binary(max_size=300), st.integers(9, 120))
def test_a_publish_is_written_byte_by_byte_as_pika_writes_it(
    channel, exchange, routing_key, properties, body, frame_max
):
    ours = publish_frames(
        channel,
        publish_method(exchange, routing_key),
        b"".join(properties.encode()),
        body,
        frame_max,
    )

    assert ours == written_by_pika(channel, exchange, routing_key, properties, body, frame_max)
