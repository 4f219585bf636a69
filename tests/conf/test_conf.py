"""The EVENTBUS setting."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_eventbus import transports
from django_eventbus.conf import SETTINGS, conf
from django_eventbus.exceptions import BadSetting
from tests.support.tables import table

SECRET = "hunter2"


def eventbus(**given):
    return override_settings(EVENTBUS={"SERVICE": "orders", **given})


@eventbus()
def test_every_setting_has_a_default_but_service():
    assert list(conf.problems()) == []
    assert conf.broker_url == "database://"
    assert conf.retry_delays == (30, 5 * 60, 30 * 60)
    assert conf.tries is None
    assert conf.max_body_bytes == 1024 * 1024


@override_settings(EVENTBUS={})
def test_without_a_service_the_setting_to_write_is_named():
    with pytest.raises(BadSetting, match=r"EVENTBUS\['SERVICE'\]: is missing.*'orders'"):
        _ = conf.service


def test_a_missing_dict_is_like_an_empty_one(settings):
    del settings.EVENTBUS

    assert [problem.key for problem in conf.problems()] == ["SERVICE"]


@pytest.mark.parametrize("given", [None, "orders", ["orders"], 1])
def test_what_is_no_dict_is_refused_with_an_example(given, settings):
    settings.EVENTBUS = given

    with pytest.raises(ImproperlyConfigured, match="must be a dict, for instance"):
        _ = conf.service


def test_settings_are_read_when_they_are_used():
    with eventbus(CONCURRENCY=7):
        assert conf.concurrency == 7
    with eventbus(CONCURRENCY=8):
        assert conf.concurrency == 8


@table(
    ("service", "namespace", "expected"),
    [
        ("orders", None, "default"),
        ("shop-orders", None, "shop"),
        ("shop-orders-eu", None, "shop"),
        ("-orders", None, "default"),
        ("shop-orders", "mall", "mall"),
    ],
)
def test_the_namespace_is_given_or_comes_from_the_service(service, namespace, expected):
    with eventbus(SERVICE=service, NAMESPACE=namespace):
        assert conf.namespace == expected
        assert conf.events_exchange == f"{expected}.events"
        assert conf.queue() == f"{expected}.{service}"
        assert conf.queue("billing") == f"{expected}.{service}.billing"


@table(
    ("written", "expected"),
    [
        (["30s", "5m"], (30, 300)),
        (("30s", 300, timedelta(minutes=30)), (30, 300, 1800)),
        ("30s", (30,)),
        (30, (30,)),
        ([0, "0s", "1s", "1s"], (0, 0, 1, 1)),
        ([], ()),
    ],
)
def test_delays_are_a_list_or_one_and_may_repeat_or_be_0(written, expected):
    with eventbus(RETRY_DELAYS=written):
        assert conf.retry_delays == expected


WRONG = {
    "SERVICE": [None, "", 3, "two words", "a.b", "größe", "a\x00", "a\n"],
    "NAMESPACE": ["", 3, "a.b", "#"],
    "BROKER_URL": [None, 5, "", "amqp", f"amqp:{SECRET}@host", f"me:{SECRET}@host://"],
    "BROKER_USER": [3],
    "BROKER_PASSWORD": [3],
    "BROKER_OPTIONS": [
        None,
        "60s",
        {"HEARTBEATS": "60s"},
        {"HEARTBEAT": 0},
        {"CONNECT_TIMEOUT": 0},
        {"CONFIRM_TIMEOUT": "0s"},
        {"CONFIRM_TIMEOUT": None},
        {"CONFIRM_TIMEOUT": float("inf")},
        {"LEASE": -1},
        {"TLS": "ca.pem"},
        {"TLS": {"CERT": "x"}},
    ],
    "MANAGEMENT_URL": [3, "", "host:15672", f"amqp://me:{SECRET}@host"],
    "TOPOLOGY": ["create", None],
    "NAMES": [
        None,
        "{queue}",
        {"quue": "x"},
        {"queue": 3},
        {"queue": ""},
        {"queue": "{nmae}"},
        {"queue": "{name.upper}"},
        {"queue": "{name!r}"},
        {"queue": "{name:>9}"},
        {"queue": "{"},
        {"queue": "{}"},
        {"events_exchange": "{queue}"},
        {"tier": "{queue}.{type}"},
        {"routing_key": "v{type}"},
        {"routing_key": "{type}-v{version}"},
        {"command_routing_key": "{type}{type}"},
    ],
    "EXCHANGE_TYPES": [None, "topic", {"events": "headers"}, {"signals": "topic"}],
    "ROUTES": [None, {"a.#": ""}, {"a.#": "{queue}"}, {1: "x"}],
    "QUEUE_TYPE": ["stream", None],
    "RETRY_DELAYS": [None, "soon", ["30s", None], {"30s": 1}, [-1], ["9" * 400 + "s"]],
    "TRIES": [0, -1, "3", 2.0, True, 2**31],
    "FORMAT": [None, "json", ["native"]],
    "PARK_TO": [None, "disk", ["broker"]],
    "COLLECT_DLQ": [1, "no"],
    "UNMATCHED": ["drop", ["park"], True],
    "UNROUTABLE": [None, "drop", ["flag"], True],
    "REQUIRE_TRANSACTION": [None, 1, "yes"],
    "MAX_BODY_BYTES": [0, "1MB", None],
    "BATCH_SIZE": [0, None],
    "SHARDS": [0, 1025, 2**31],
    "POLL_INTERVAL": [0, "later"],
    "CONCURRENCY": [0, 1.5],
    "START_LIMIT": [0],
    "DEFER_LIMIT": [0, "1000000d"],
    "ORDERED_BLOCK": [0, "long"],
    "HOLD_KEYS": [None, 1, "yes"],
    "REDRIVE": [
        None,
        50,
        {"RATES": 50},
        {"CANARY": -1},
        {"CANARY": True},
        {"RATE": 0},
        {"RATE": "5"},
        {"IN_FLIGHT": 0},
        {"FAIL_PERCENT": 101},
        {"TRIES": 0},
        {"TIMEOUT": 0},
    ],
    "LOG_LEVELS": ["INFO", [], {"EVENT_HANDLED": "LOUD"}, {"HANDLED": "INFO"}],
    "STATSD": [
        5,
        "",
        "127.0.0.1:8125",
        "statsd://",
        "http://127.0.0.1:8125",
        "statsd://127.0.0.1:port",
        "statsd://127.0.0.1:99999",
        "statsd://127.0.0.1/shop",
        "statsd://127.0.0.1?prefix=a|b",
        "statsd://127.0.0.1?prefix",
        "statsd://127.0.0.1?prefx=shop",
        "statsd://127.0.0.1?prefix=a&prefix=b",
        f"statsd://me:{SECRET}@127.0.0.1",
    ],
    "REDACT": ["password", [""], [1]],
    "PERMISSION": ["nowhere.at_all", 5],
    "TRACE_URL": [5, "/trace/{trace_id}", "https://jaeger.example/"],
}


def test_the_table_of_wrong_values_knows_every_setting():
    assert set(WRONG) == set(SETTINGS)


@table(
    ("key", "value"),
    [(key, value) for key, values in WRONG.items() for value in values],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_key(key, value):
    with eventbus(**{key: value}):
        problems = list(conf.problems())

    assert [problem.key for problem in problems] == [key]
    assert str(problems[0]).startswith(f"EVENTBUS['{key}']: ")
    assert SECRET not in repr(problems[0]) + str(problems[0])


@table(
    ("key", "guess"),
    [
        ("BROKER_URI", "BROKER_URL"),
        ("service", "SERVICE"),
        ("RETRY_DELAY", "RETRY_DELAYS"),
        ("XYZZY", ""),
        (7, ""),
    ],
)
def test_an_unknown_key_comes_with_a_guess_at_what_was_meant(key, guess):
    with override_settings(EVENTBUS={"SERVICE": "orders", key: 1}):
        assert list(conf.unknown_keys()) == [(str(key), guess)]


@table("url", [f"kafka://me:{SECRET}@host/", f"kafka://{SECRET}", "://"])
def test_an_unknown_transport_is_named_without_the_rest_of_its_url(url):
    with pytest.raises(BadSetting, match="unknown scheme") as refusal:
        transports.connect(url)

    assert SECRET not in repr(refusal.value) + str(refusal.value)


def test_the_setting_descriptor_itself_can_be_had_from_the_class():
    assert type(conf).service.key == "SERVICE"
