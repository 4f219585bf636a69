"""Buses laid out by others, declared by hand here, and joined by the recipes of the docs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from django_eventbus import publish, signals, subscribe
from django_eventbus.models import DeadLetter, InboxRecord, OutboxEvent
from django_eventbus.subscriptions.subscription import registry
from tests.shop.models import Effect
from tests.support.amqp import Amqp
from tests.support.buses import LAYOUTS, fanout_bus, freeflow, member, recipe
from tests.support.own_broker import OTHER_WORKER

pytestmark = [
    pytest.mark.rabbitmq,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("no_subscriptions"),
    OTHER_WORKER,
]

#: What the broker lets us write to: exchanges, and so no binding can be made.
WRITABLE = (
    r"amq\.default|wms\.(main|retry)-exchange.*|ratatoskr\.events|freeflow\.events(\.retry)?"
    r"|domain\.(events|commands)|retry\.q\..*|easyweek\.bus|easyweek\.invoice-service\.retry"
)
GUEST = "guest-of-the-bus"


@pytest.fixture(scope="session")
def guest_url(own_node) -> str:
    """Be known to the broker as somebody who may declare, delete and bind nothing."""
    own_node.call("PUT", f"users/{GUEST}", password="guest", tags="")
    rights = {"configure": "^$", "write": f"^({WRITABLE})$", "read": ".*"}
    own_node.call("PUT", f"permissions/%2F/{GUEST}", **rights)
    return own_node.server.url.replace("guest:guest@", f"{GUEST}:guest@")


def everything_on(node) -> dict[str, list[str]]:
    """Return every exchange, queue and binding, as the broker exports them."""
    exported = json.loads(node.call("GET", "definitions"))
    return {
        key: sorted(json.dumps(each, sort_keys=True) for each in exported[key])
        for key in ("exchanges", "queues", "bindings")
    }


def handler(event: Any) -> None:
    """Leave an effect; fail at first, or always, if told so."""
    Effect.objects.create(event_id=event.meta.id, subscription="handler")
    told = event.payload.get("do")
    if told == "fail" or (told == "fail once" and event.meta.attempt == 1):
        raise ValueError("told to fail")


def effects() -> list[str]:
    return list(Effect.objects.values_list("event_id", flat=True))


def drained(channel: Any, queue: str) -> list[tuple[str, int]]:
    """Return the ids of what a bystander got, each with its number of retries."""
    found = []
    while True:
        method, properties, _ = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return found
        found.append((properties.message_id, (properties.headers or {}).get("x-retry-count", 0)))


@pytest.fixture
def skipped() -> Iterator[list[str]]:
    reasons: list[str] = []

    def note(sender: object, reason: str, **kwargs: object) -> None:
        reasons.append(reason)

    signals.event_skipped.connect(note)
    yield reasons
    signals.event_skipped.disconnect(note)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_bus_laid_out_by_others_is_joined_without_a_right_to_touch_it(
    name, guest_url, hands, skipped
):
    layout = LAYOUTS[name]
    layout.lay_out(hands)
    hands.empty()
    layout.handle(handler)
    settings = {**recipe(layout.heading), "BROKER_URL": guest_url, "POLL_INTERVAL": "50ms"}

    with member(**settings) as joined:
        ours = layout.publish({"do": "fail once"})
        parked = layout.publish({"do": "fail"})
        theirs = hands.send(layout.exchange, layout.event, layout.body)
        joined.work_until(lambda: DeadLetter.objects.exists() and len(effects()) == 2)
        tries = settings.get("TRIES") or len(settings["RETRY_DELAYS"]) + 1

    assert sorted(effects()) == sorted([ours, theirs])
    letter = DeadLetter.objects.get()
    assert (letter.message_id, letter.kind, letter.attempts) == (parked, "failed", tries)
    seen = drained(hands.channel, layout.bystander)
    if layout.exchange != "domain.commands":
        assert {message_id for message_id, _ in seen} == {ours, parked, theirs}
    assert any(retries for _, retries in seen) is layout.leaks
    assert skipped == []


@pytest.mark.parametrize("mode", ["check", "assume"])
def test_joining_adds_changes_and_removes_nothing_even_with_the_right_to(mode, own_node, hands):
    for layout in LAYOUTS.values():
        layout.lay_out(hands)
    before = everything_on(own_node)

    for layout in LAYOUTS.values():
        layout.handle(handler)
        its_own = {"BROKER_URL": own_node.server.url, "TOPOLOGY": mode}
        with member(**recipe(layout.heading) | its_own) as joined:
            event = layout.publish({"do": "fail once"})
            joined.work_until(lambda event=event: event in effects())
            call_command("eventbus_topology", "--plan", stdout=StringIO())
        registry.remove(*registry)

    assert everything_on(own_node) == before


def test_a_copy_that_comes_back_to_everyone_is_for_one_of_them(guest_url, hands, skipped):
    freeflow(hands)
    hands.empty()
    settings = {**recipe(LAYOUTS["freeflow"].heading), "BROKER_URL": guest_url}
    subscribe("user.*", name="handler")(handler)

    with member(**settings) as user:
        event = str(publish("user.created", {"do": "fail once"}))
        user.work_until(lambda: effects() == [event])
    # The other service has the event itself once, and a copy that is not its own.
    with member(**settings | {"SERVICE": "audit"}) as audit:
        InboxRecord.objects.all().delete()
        audit.work_until(lambda: skipped and effects() == [event] * 2)

    assert skipped == ["the message is for freeflow.user"]
    assert not DeadLetter.objects.exists()


def test_a_thousand_foreign_events_on_a_fanout_bus_make_no_dead_letter(guest_url, hands, skipped):
    fanout_bus(hands)
    hands.empty()
    settings = {**recipe(LAYOUTS["wms"].heading), "BROKER_URL": guest_url}
    subscribe("stock.moved", name="handler")(handler)

    for number in range(1000):
        hands.publish("wms.main-exchange", f"foreign.kind{number % 7}")
    ours = hands.publish("wms.main-exchange", "stock.moved")
    with member(**settings) as joined:
        joined.work_until(lambda: effects() == [ours] and len(skipped) == 1000)

    assert not DeadLetter.objects.exists()
    assert InboxRecord.objects.count() == 1
    assert hands.channel.queue_declare("wms.dlq.wms-stock", passive=True).method.message_count == 0
    hands.channel.queue_purge("wms.queue.wms-other")


def test_two_namespaces_share_a_virtual_host_without_touching_each_other(rabbitmq_url, settings):
    one, two = Amqp(rabbitmq_url), Amqp(rabbitmq_url)
    subscribe("act.*", queue="acts", name="handler", retry=["50ms"])(handler)
    plain = settings.EVENTBUS

    try:
        with member(**plain | two.settings):
            with member(**plain | one.settings) as joined:
                event = str(publish("act.now", {"do": "fail once"}))
                joined.work_until(lambda: effects() == [event])
            assert OutboxEvent.objects.get().exchange == f"{one.namespace}.events"
            assert two.count(two.queue()) == two.count(f"{two.queue()}.retry.50ms") == 0
            one.delete_everything()
            assert two.count(two.queue()) == 0
    finally:
        one.delete_everything()
        two.delete_everything()
