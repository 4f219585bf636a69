"""A connection that is reset while it is being opened, as by a load balancer without a node."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from django_eventbus.exceptions import BrokerUnavailable
from django_eventbus.transports.rabbitmq.connection import BrokerConnection
from django_eventbus.transports.rabbitmq.parameters import address_of


def test_a_connection_that_is_reset_at_once_is_an_outage_and_not_critical(caplog, monkeypatch):
    def getpeername(sock):
        # What it says if the reset arrives just before it; that moment is too short to be hit.
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))

    monkeypatch.setattr(socket.socket, "getpeername", getpeername)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"amqp://127.0.0.1:{listener.getsockname()[1]}/"
        connection = BrokerConnection(address_of(url), "publisher")

        with pytest.raises(BrokerUnavailable):
            connection.open()

    assert not [each for each in caplog.records if each.levelname == "CRITICAL"]
