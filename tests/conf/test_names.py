"""Names, keys and exchange types by template."""

from __future__ import annotations

import pytest
from django.test import override_settings

from django_eventbus import Event, publish, subscribe
from django_eventbus.conf import conf
from django_eventbus.models import OutboxEvent
from django_eventbus.subscriptions.queue_specs import QueueSpec, queue_specs
from django_eventbus.transports.contract import ToTier
from django_eventbus.transports.rabbitmq.topology import resources


def eventbus(**given):
    return override_settings(EVENTBUS={"SERVICE": "shop-orders", **given})


@eventbus()
def test_by_default_everything_of_a_queue_is_named_after_it():
    assert resources.retry_exchange("q") == "q.retry"
    assert resources.tier("q", 300) == "q.retry.5m"
    assert resources.target_of(ToTier(queue="q", delay=300)) == ("q.retry", "5m")
    assert resources.target_of(ToTier(queue="q", delay=0)) == ("", "q")
    assert resources.dead_letter_queue("q") == resources.dead_letter_exchange("q") == "q.dlq"
    assert resources.dead_letter_key("q") == ""


@eventbus(NAMES={"tier": "{namespace}.{name}.{delay}", "tier_key": "{tier}!"})
def test_a_template_may_use_the_short_name_of_a_queue():
    assert conf.short_name(conf.queue("billing")) == "billing"
    assert conf.short_name(conf.queue()) == ""
    assert resources.tier(conf.queue("billing"), 30) == "shop.billing.30s"
    assert resources.tier_key(conf.queue("billing"), 30) == "shop.billing.30s!"


@eventbus(NAMES={"queue": "q.{name}-in", "main_queue": "q.main"})
def test_a_short_name_is_read_out_of_any_template():
    assert conf.queue("billing") == "q.billing-in"
    assert conf.short_name("q.billing-in") == "billing"
    assert conf.short_name("q.main") == ""


@eventbus(NAMES={"dead_letter_exchange": "dlq.{queue}", "dead_letter_key": "parking"})
def test_a_key_to_the_dlq_is_an_argument_and_a_binding():
    spec = QueueSpec(name="q", exchange="e", patterns=("a.*",), delays=())

    found = list(resources.resources(spec))

    work = next(each for each in found if getattr(each, "name", "") == "q")
    assert work.arguments["x-dead-letter-routing-key"] == "parking"
    assert resources.Bind(queue="q.dlq", exchange="dlq.q", key="parking") in found


@eventbus(
    NAMES={
        "retry_exchange": "",
        "tier_key": "{tier}",
        "dead_letter_exchange": "",
        "dead_letter_key": "{dead_letter_queue}",
    }
)
def test_nothing_is_declared_on_or_bound_to_the_default_exchange():
    spec = QueueSpec(name="q", exchange="e", patterns=("a.*",), delays=(1.0,))

    found = list(resources.resources(spec))

    exchanges = [each.name for each in found if isinstance(each, resources.Exchange)]
    binds = [each for each in found if isinstance(each, resources.Bind)]
    assert exchanges == ["e"]
    assert binds == [resources.Bind(queue="q", exchange="e", key="a.*")]
    assert resources.target_of(ToTier(queue="q", delay=1.0)) == ("", "q.retry.1s")


@pytest.mark.parametrize(
    ("given", "is_ours"),
    [
        ({}, True),
        ({"NAMES": {"dead_letter_queue": "{namespace}.dlq.{service}"}}, True),
        ({"NAMES": {"dead_letter_queue": "{namespace}.dlq"}}, False),
        ({"TOPOLOGY": "check"}, False),
        ({"TOPOLOGY": "assume"}, False),
        ({"TOPOLOGY": "check", "COLLECT_DLQ": True}, True),
        ({"COLLECT_DLQ": True, "NAMES": {"dead_letter_queue": "{namespace}.dlq"}}, False),
    ],
)
def test_a_dlq_is_ours_if_we_declare_it_and_it_is_not_the_whole_bus_s(given, is_ours):
    with eventbus(**given):
        assert resources.owns_dead_letter_queue() is is_ours


class Placed(Event, type="order.placed", version=3):
    pass


@pytest.mark.django_db
@eventbus(
    NAMES={"routing_key": "{type}.v{version}", "events_exchange": "bus"},
    ROUTES={"command.#": "{namespace}.commands", "#": "never"},
)
def test_routing_keys_and_exchanges_are_written_when_an_event_is_published():
    publish(Placed())
    publish("command.ship", {})

    rows = OutboxEvent.objects.order_by("id").values_list("exchange", "routing_key")
    assert list(rows) == [("never", "order.placed.v3"), ("shop.commands", "command.ship.v1")]


@pytest.mark.usefixtures("no_subscriptions")
@eventbus(NAMES={"binding_key": "{pattern}.*"}, ROUTES={"command.#": "{namespace}.commands"})
def test_a_queue_is_bound_by_template_where_its_patterns_are_published():
    subscribe("order.*", queue="q")(lambda event: None)
    subscribe("command.ship", queue="q", name="ship")(lambda event: None)

    (spec,) = queue_specs()

    assert spec.bindings == (
        ("shop.events", "order.*.*"),
        ("shop.commands", "command.ship.*"),
        ("shop.events", "system.#.*"),
    )
    made = [str(each) for each in resources.resources(spec)]
    assert "exchange 'shop.commands'" in made
    assert f"binding of '{conf.queue('q')}' to 'shop.commands' with 'command.ship.*'" in made


@pytest.mark.usefixtures("no_subscriptions")
@eventbus(EXCHANGE_TYPES={"events": "fanout"})
def test_on_a_fanout_exchange_a_queue_has_one_binding():
    subscribe("order.*", queue="q")(lambda event: None)
    subscribe("invoice.*", queue="q", name="b")(lambda event: None)

    (spec,) = queue_specs()

    assert spec.bindings == (("shop.events", "#"),)
