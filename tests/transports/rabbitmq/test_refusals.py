"""What the broker says no to ends a command; what it did not get to say is waited for."""

from __future__ import annotations

import socket
import threading

import pytest
from pika import exceptions as amqp

from django_eventbus import publish, transports
from django_eventbus.exceptions import BrokerRefused, BrokerUnavailable
from django_eventbus.models import OutboxEvent
from django_eventbus.transports.rabbitmq.parameters import address_of, refusal
from tests.support.helpers import eventually
from tests.support.own_broker import ONE_WORKER
from tests.support.tables import table
from tests.support.tcp_proxy import TcpProxy, end


@table(
    "error",
    [
        None,
        amqp.StreamLostError("gone"),
        amqp.ProbableAuthenticationError(repr(amqp.StreamLostError("gone"))),
        amqp.ProbableAccessDeniedError(repr(amqp.StreamLostError("gone"))),
        amqp.ProbableAccessDeniedError(repr(amqp.ConnectionClosedByBroker(541, "vhost is down"))),
        amqp.ConnectionClosedByBroker(320, "shutdown"),
        amqp.IncompatibleProtocolError(repr(amqp.StreamLostError("gone"))),
    ],
)
def test_a_broker_that_dies_during_the_login_has_refused_nothing(error):
    assert refusal(error, address_of("amqp://me@host")) == ""


@table(
    "error",
    [
        amqp.ProbableAuthenticationError(repr(amqp.ConnectionClosedByBroker(403, "refused"))),
        amqp.ProbableAccessDeniedError(repr(amqp.ConnectionClosedByBroker(530, "no vhost"))),
        amqp.ConnectionClosedByBroker(403, "refused"),
    ],
)
def test_a_login_that_is_refused_is_told_with_the_user(error):
    assert refusal(error, address_of("amqp://me:hunter2@host")) == (
        "The broker at amqp://host:5672// refused the login or the virtual host for the user 'me'."
    )


@pytest.mark.rabbitmq
def test_a_virtual_host_that_is_not_there_is_refused(rabbitmq_url):
    url = f"{rabbitmq_url.rpartition('/')[0]}/nowhere"

    with pytest.raises(BrokerRefused, match="the virtual host for the user 'guest'"):
        transports.connect(url).publisher().open()


@ONE_WORKER
@pytest.mark.rabbitmq
@pytest.mark.parametrize("command", ["consume_events --with-relay", "relay_events"])
def test_a_login_that_is_revoked_ends_a_running_command_with_one_sentence(
    manage, virtual_host, command
):
    publish("act.now", {"do": "ok"})
    virtual_host.add_user("leaver", ".*", ".*", ".*")
    with TcpProxy(virtual_host.node.server.port) as proxy:
        url = f"amqp://127.0.0.1:{proxy.port}/{virtual_host.name}"
        worker = manage(*command.split(), env=virtual_host.amqp.with_settings(BROKER_URL=url))
        eventually(OutboxEvent.objects.filter(state="published").exists, timeout=30)
        virtual_host.call("PUT", "users/leaver", password="another", tags="")
        proxy.cut()

        assert worker.wait() == 1

    lines = worker.output.splitlines()
    assert "refused the login or the virtual host for the user 'leaver'" in lines[-1]
    assert sum("stopped: The broker" in line for line in lines) == 2, worker.output
    assert "Traceback" not in worker.output
    assert "secret" not in worker.output


@pytest.mark.rabbitmq
def test_the_next_host_is_asked_when_one_is_away(rabbitmq_url):
    scheme, _, rest = rabbitmq_url.partition("://")
    credentials, _, place = rest.rpartition("@")
    publisher = transports.connect(f"{scheme}://{credentials}@127.0.0.1:1,{place}").publisher()

    publisher.open()

    publisher.close()


def test_a_server_that_hangs_up_at_once_is_an_outage(settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "BROKER_OPTIONS": {"CONNECT_TIMEOUT": "2s"}}
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=lambda: end(listener.accept()[0]), daemon=True).start()
    url = f"amqp://127.0.0.1:{listener.getsockname()[1]}"

    with pytest.raises(BrokerUnavailable, match="does not answer"):
        transports.connect(url).publisher().open()

    end(listener)
