"""amqps: who is trusted, and a refused certificate is a sentence, not a wait."""

from __future__ import annotations

import json

import pytest

from django_eventbus import transports
from django_eventbus.conf import conf
from django_eventbus.exceptions import BadSetting, BrokerRefused
from tests.support.certificates import Authority
from tests.support.own_broker import ONE_WORKER

pytestmark = [pytest.mark.rabbitmq, ONE_WORKER]


@pytest.fixture
def connect(own_broker, settings):
    """Return a function that connects over TLS, with the right files unless told otherwise."""

    def connect(host="localhost", port=0, **changes):
        certificate, key = own_broker.client
        right = {
            "CA": str(own_broker.authority.certificate),
            "CERTIFICATE": str(certificate),
            "KEY": str(key),
        }
        files = {name: file for name, file in {**right, **changes}.items() if file is not None}
        url = f"amqps://guest:hunter2@{host}:{port or own_broker.tls_port}/"
        own = {"BROKER_URL": url, "BROKER_PASSWORD": "guest", "BROKER_OPTIONS": {"TLS": files}}
        settings.EVENTBUS = {**settings.EVENTBUS, **own}
        publisher = transports.connect(conf.broker_url).publisher()
        try:
            publisher.open()
            return publisher._line.connection.is_open
        finally:
            publisher.close()

    return connect


def test_with_the_right_authority_and_certificate_it_connects(connect):
    assert connect()


def test_an_authority_that_did_not_sign_is_refused_with_one_sentence(connect, tmp_path):
    other = Authority(tmp_path, "other")

    with pytest.raises(BrokerRefused) as raised:
        connect(CA=str(other.certificate))

    words = str(raised.value)
    assert words.startswith("TLS failed with the broker at amqps://localhost:")
    assert (
        "the certificate of the broker is not trusted (self-signed certificate in certificate"
        in words
    )


def test_without_an_authority_the_system_s_are_asked(connect):
    with pytest.raises(BrokerRefused, match="the certificate of the broker is not trusted"):
        connect(CA=None)


def test_another_host_than_the_certificate_names_is_refused(connect):
    with pytest.raises(BrokerRefused, match="IP address mismatch"):
        connect(host="127.0.0.1")


def test_verify_false_trusts_any_certificate_and_host(connect):
    assert connect(host="127.0.0.1", CA=None, VERIFY=False)


def test_a_client_certificate_that_the_broker_wants_and_does_not_get(connect):
    with pytest.raises(BrokerRefused, match="the broker requires a client certificate"):
        connect(CERTIFICATE=None, KEY=None)


def test_a_client_certificate_of_an_authority_that_the_broker_does_not_know(connect, tmp_path):
    certificate, key = Authority(tmp_path, "other").issue("stranger")

    with pytest.raises(BrokerRefused, match=r"does not (trust|accept) the client certificate"):
        connect(CERTIFICATE=str(certificate), KEY=str(key))


def test_a_port_that_speaks_no_tls(connect, own_broker):
    with pytest.raises(BrokerRefused, match="the port does not use TLS"):
        connect(port=own_broker.server.port)


@pytest.mark.parametrize("name", ["CA", "CERTIFICATE", "KEY"])
def test_a_file_that_is_missing_is_named(connect, name):
    with pytest.raises(BadSetting, match=rf"BROKER_OPTIONS.*TLS.*{name}.*/nowhere.pem"):
        connect(**{name: "/nowhere.pem"})


def test_files_that_do_not_belong_together_are_named(connect, own_broker):
    with pytest.raises(BadSetting, match=r"BROKER_OPTIONS.*TLS.*CERTIFICATE and KEY"):
        connect(KEY=str(own_broker.authority.key))


@pytest.mark.django_db(transaction=True)
def test_a_refused_certificate_ends_the_command_with_one_sentence(manage, own_broker):
    url = f"amqps://guest:hunter2@localhost:{own_broker.tls_port}/"
    environment = {"EVENTBUS_TEST_SETTINGS": json.dumps({"BROKER_URL": url})}

    ended = manage.run("consume_events", env=environment)

    assert ended.returncode == 1
    assert ended.output.splitlines()[-1].startswith("CommandError: TLS failed with the broker")
    assert "hunter2" not in ended.output
    assert "Traceback" not in ended.output
