"""Why a message lies in a DLQ, read from headers that anybody may have written."""

from __future__ import annotations

from datetime import UTC, datetime

from django_eventbus.dead_letters.broker_deaths import (
    broker_death,
    owning_queue,
    with_original_route,
)
from django_eventbus.events.message import Message
from tests.support.tables import table

NOON = datetime(2030, 1, 1, 12)


def died(**headers):
    return Message(
        id="1",
        type="a",
        body=b"",
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        exchange="dlx",
        routing_key="k",
    )


def entry(queue, reason, **values):
    return {"queue": queue, "reason": reason, "exchange": "bus", "routing-keys": ["a.b"], **values}


def test_the_death_in_its_own_queue_counts_whatever_the_order():
    tier, own = entry("q.retry.30s", "expired"), entry("q", "delivery_limit", time=NOON)

    for deaths in ([own, tier], [tier, own]):
        death = broker_death(died(x_death=deaths), "q")
        assert (death.kind, death.at) == ("delivery_limit", NOON.replace(tzinfo=UTC))


def test_without_an_entry_for_its_queue_the_latest_counts():
    assert broker_death(died(x_death=[entry("other", "maxlen")]), "q").kind == "maxlen"
    assert broker_death(died(x_last_death_reason="rejected"), "q").kind == "rejected"
    assert broker_death(died(x_first_death_reason="expired"), "q").kind == "expired"


@table(
    "headers",
    [
        {},
        {"x_death": "nonsense"},
        {"x_death": [1, None]},
        {"x_death": [{"reason": ["list"]}]},
        {"x_death": [entry("q", "made up")]},
    ],
)
def test_what_tells_nothing_was_put_there_by_others(headers):
    assert broker_death(died(**headers), "q").kind == "foreign"


def test_what_a_consumer_said_counts_more_than_what_the_broker_says():
    message = died(x_final_error="KeyError: 'a: b'", x_death=[entry("q", "rejected")])

    death = broker_death(message, "q")

    assert (death.kind, death.error_type, death.error) == ("failed", "KeyError", "'a: b'")
    assert death.is_parked


def test_words_that_name_no_error_are_kept_whole():
    death = broker_death(died(x_final_error="could not: reach it"), "q")

    assert (death.error_type, death.error) == ("", "could not: reach it")


def test_where_it_was_published_is_restored():
    message = with_original_route(died(x_death=[entry("q", "rejected")]), "q")

    assert (message.exchange, message.routing_key) == ("bus", "a.b")
    assert (
        with_original_route(died(x_death=[{"queue": "q", "routing-keys": []}]), "q").exchange
        == "dlx"
    )


def test_a_message_in_a_shared_dlq_goes_home_by_what_its_headers_say():
    queues = ["a", "b"]

    assert owning_queue(died(x_original_queue="b"), queues) == "b"
    assert (
        owning_queue(died(x_death=[entry("b.retry", "expired"), entry("b", "rejected")]), queues)
        == "b"
    )
    assert owning_queue(died(x_original_queue="elsewhere"), queues) == "a"
    assert owning_queue(died(), queues) == "a"
