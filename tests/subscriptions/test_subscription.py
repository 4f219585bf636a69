"""@subscribe, the registry, and topic patterns."""

from __future__ import annotations

import time
from datetime import timedelta
from itertools import product

import pytest
from django.test import override_settings
from hypothesis import given, settings
from hypothesis import strategies as st

from django_eventbus import Event, subscribe
from django_eventbus.events.message import Message
from django_eventbus.events.routing import matches
from django_eventbus.subscriptions.subscription import default_policy, policy_for, registry
from tests.support.tables import table


class OrderPlaced(Event, type="order.placed"):
    order_id: int


def naive(pattern: list[str], key: list[str]) -> bool:
    """Match as the AMQP specification reads, one word at a time."""
    if not pattern:
        return not key
    first, *rest = pattern
    if first == "#":
        return naive(rest, key) or (bool(key) and naive(pattern, key[1:]))
    return bool(key) and first in ("*", key[0]) and naive(rest, key[1:])


def words(topic: str) -> list[str]:
    """Split as RabbitMQ does: the empty topic has no words, "a." has two."""
    return topic.split(".") if topic else []


pattern_words = st.lists(st.sampled_from(["#", "*", "a", "b", ""]), max_size=6)
key_words = st.lists(st.sampled_from(["a", "b", "", "#", "*"]), max_size=6)


@settings(deadline=None, max_examples=300)
@given(pattern_words.map(".".join), key_words.map(".".join))
def test_patterns_match_as_a_naive_matcher_does(pattern, key):
    assert matches(pattern, key) == naive(words(pattern), words(key))


def test_every_short_pattern_matches_every_short_key_as_a_naive_matcher_does():
    patterns = [p for size in range(4) for p in product("#*a", repeat=size)]
    keys = [k for size in range(4) for k in product(("a", "b", ""), repeat=size)]

    for pattern, key in product(map(".".join, patterns), map(".".join, keys)):
        assert matches(pattern, key) == naive(words(pattern), words(key)), (pattern, key)


@table(
    ("pattern", "key", "expected"),
    [
        ("order.placed", "order.placed", True),
        ("order.placed", "order.Placed", False),
        ("order.placed", "order.placed.late", False),
        ("order.*", "order.placed", True),
        ("order.*", "order", False),
        ("order.*", "order.", True),
        ("order.#", "order", True),
        ("order.#", "order.placed.late", True),
        ("order.#", "orders", False),
        ("#", "", True),
        ("*", "", False),
        ("", "", True),
        ("", "order", False),
        ("#.#", "", True),
        ("#.#.placed", "placed", True),
        ("*.#.*", "order", False),
        ("#.placed.#", "a.placed.b.placed", True),
        ("order.pl*", "order.placed", False),
        (".", ".", True),
        (".", "", False),
    ],
)
def test_a_star_is_one_word_and_a_hash_any_number_of_words(pattern, key, expected):
    assert matches(pattern, key) is expected


@table(
    ("pattern", "key"),
    [
        ("a." + ".".join("#" * 100), "a" + ".b" * 100),
        (".".join("#" * 100) + ".never", "a" + ".b" * 100),
        (".".join(["#", "*"] * 50) + ".never", "a" + ".a" * 100),
        (".".join(["#", "a"] * 50) + ".never", "a" + ".a" * 100),
    ],
)
def test_many_hashes_cost_no_more_than_their_product(pattern, key):
    began = time.process_time()

    assert matches(pattern, key) is not pattern.endswith("never")

    assert time.process_time() - began < 1


@pytest.fixture
def subscribed(no_subscriptions):
    """Subscribe a function for this test; return its subscription."""

    def subscribed(pattern="order.placed", **options):
        @subscribe(pattern, **options)
        def handler(event):
            """Never run."""

        return list(registry)[-1]

    return subscribed


def test_subscribe_returns_the_function_as_it_was(no_subscriptions):
    def handler(event):
        return 7

    assert subscribe("order.placed")(handler) is handler


def test_a_subscription_is_named_after_its_function_without_the_module_subscribers(subscribed):
    def charge(event):
        """Never run."""

    charge.__module__, charge.__qualname__ = "billing.subscribers", "charge"
    subscribe("order.placed")(charge)

    assert [each.name for each in registry] == ["billing.charge"]


def test_a_class_subscribes_to_its_type(subscribed):
    subscription = subscribed(OrderPlaced)

    assert subscription.pattern == "order.placed"
    assert subscription.event_class is OrderPlaced


@pytest.mark.parametrize("aliases", ["billing.bill", ["billing.bill"], iter(["billing.bill"])])
def test_a_renamed_subscription_is_found_by_its_earlier_name(subscribed, aliases):
    subscription = subscribed(name="billing.charge", aliases=aliases)

    assert registry.named("billing.charge") is subscription
    assert registry.named("billing.bill") is subscription
    assert registry.named("b") is None


@override_settings(EVENTBUS={"SERVICE": "shop-orders"})
def test_subscriptions_are_listed_by_queue_and_database(subscribed):
    main, billing = subscribed(name="a"), subscribed(name="b", queue="billing", using="books")

    assert registry.queues() == ["shop.shop-orders", "shop.shop-orders.billing"]
    assert registry.on_queue("shop.shop-orders") == [main]
    assert registry.on_queue("shop.shop-orders.billing") == [billing]
    assert registry.databases() == ["books", "default"]


@pytest.mark.parametrize(
    ("options", "delays", "tries"),
    [
        # nothing said: as the settings say
        ({}, (10, 20), 7),
        # delays of its own come with tries of their own
        ({"retry": ["1s", "5s"]}, (1, 5), 3),
        ({"retry": []}, (), 1),
        ({"retry": "1m"}, (60,), 2),
        ({"retry": 60}, (60,), 2),
        ({"retry": timedelta(minutes=1)}, (60,), 2),
        ({"retry": (each for each in ("1s", 0, 0))}, (1, 0, 0), 4),
        # tries shorter and longer than the list
        ({"retry": ["1s", "5s"], "tries": 1}, (1, 5), 1),
        ({"retry": ["1s", "5s"], "tries": 9}, (1, 5), 9),
        ({"tries": 2}, (10, 20), 2),
    ],
)
@override_settings(EVENTBUS={"SERVICE": "orders", "RETRY_DELAYS": [10, 20], "TRIES": 7})
def test_a_policy_is_what_the_subscription_says_and_else_what_the_settings_say(
    subscribed, options, delays, tries
):
    policy = subscribed(**options).policy

    assert (policy.delays, policy.tries) == (delays, tries)


@override_settings(EVENTBUS={"SERVICE": "orders", "RETRY_DELAYS": ["1s"]})
def test_tries_are_one_more_than_the_delays_unless_said_otherwise():
    assert (default_policy().delays, default_policy().tries) == ((1,), 2)


@override_settings(EVENTBUS={"SERVICE": "orders", "REDRIVE": {"TRIES": 2}})
def test_a_redriven_message_has_tries_of_its_own(subscribed):
    message = Message(id="1", type="a", body=b"", headers={"x-redriven-count": 1})

    assert policy_for(message, subscribed(tries=9)).tries == 2
    assert policy_for(message, None).tries == 2


@pytest.mark.parametrize(
    "options", [{"tries": 0}, {"tries": -1}, {"tries": "3"}, {"retry": "soon"}]
)
def test_a_wrong_retry_or_tries_is_refused_where_it_is_written(subscribed, options):
    with pytest.raises(ValueError, match="is not a"):
        subscribed(**options)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"type": "order.placed"}, True),
        ({"type": "OrderPlaced", "routing_key": "order.placed"}, True),
        # back from a tier, the routing key is the queue's name
        ({"type": "x", "headers": {"x-original-routing-key": "order.placed"}}, True),
        ({"type": "x", "routing_key": "y"}, False),
        ({"type": "x", "headers": {"x-original-routing-key": ["order.placed"]}}, False),
    ],
)
def test_a_message_is_matched_by_its_type_or_its_first_routing_key(subscribed, message, expected):
    assert subscribed("order.*").matches(Message(id="1", body=b"", **message)) is expected


@override_settings(EVENTBUS={"SERVICE": "orders"})
def test_a_pattern_is_given_the_plain_payload_and_its_meta(subscribed):
    headers = {"x-retry-count": 2, "eventbus-key": "7", "eventbus-causation": "c", "team": "red"}
    message = Message(id="1", type="order.placed", body=b"", correlation_id="r", headers=headers)

    event = subscribed("order.*", name="audit", retry=[0, 0]).event(message, {"total": "3"})

    assert (event.type, event.payload) == ("order.placed", {"total": "3"})
    assert (event.meta.attempt, event.meta.tries, event.meta.is_last) == (3, 3, True)
    assert (event.meta.key, event.meta.causation_id, event.meta.correlation_id) == ("7", "c", "r")
    assert event.meta.headers["team"] == "red"
    assert (event.meta.queue, event.meta.subscription) == ("default.orders", "audit")


def test_a_class_is_given_the_event_with_its_meta(subscribed):
    message = Message(id="1", type="order.placed", body=b"")

    event = subscribed(OrderPlaced, name="charge").event(message, {"order_id": 7})

    assert event == OrderPlaced(order_id=7)
    assert (event.meta.id, event.meta.subscription) == ("1", "charge")


@table("pattern", [print, ["a.b", "c.d"], None, int])
def test_what_is_no_pattern_and_no_event_class_is_refused_at_once(pattern):
    with pytest.raises(TypeError, match=r"Use @subscribe\('order.placed'\)"):
        subscribe(pattern)


def test_one_exception_class_may_stand_without_a_list(no_subscriptions):
    subscribe("a.b", park_on=KeyError, name="strict")(print)

    assert registry.named("strict").park_on == (KeyError,)


@table("errors", ["KeyError", ["KeyError"], [int]])
def test_what_is_no_exception_class_is_refused_by_the_name_of_its_list(errors):
    with pytest.raises(TypeError, match=r"park_on=.* is not a list of exception classes"):
        subscribe("a.b", park_on=errors)(print)
