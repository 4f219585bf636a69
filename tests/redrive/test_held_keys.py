"""hold_key: what is behind a parked event of its key waits for it, and goes in order."""

from __future__ import annotations

import pytest

from django_eventbus import GiveUp, publish
from django_eventbus.durations import Throttle
from django_eventbus.models import DeadLetter, QueuedMessage
from django_eventbus.redrive.discards import discard
from django_eventbus.redrive.held_keys import release_held
from django_eventbus.redrive.letters import redrive
from django_eventbus.subscriptions.outcomes import Handled
from tests.consumer.test_ordered import Script, Stop, consume
from tests.support.sessions import impatient, locked_by_another

pytestmark = pytest.mark.both_databases


@pytest.fixture
def script(bus):
    """A handler that holds keys, and for which events 1, 2 and 4 of a key and 3 of another came."""
    script = Script()
    options = {"ordered": True, "hold_key": True, "retry": ["1s", "2s"]}
    bus.subscribe("order.*", queue="o", name="o", **options)(script)
    script.errors[1] = [GiveUp()]
    for payload in (1, 2, 3, 4):
        publish("order.changed", payload, key="other" if payload == 3 else "k")
    work(bus)
    return script


def work(bus):
    """Relay and consume until nothing is left, but do not look for what is held."""
    while bus.relay() or QueuedMessage.objects.exists():
        while QueuedMessage.objects.exists():
            consume(bus, Stop(bus))


def letters():
    found = DeadLetter.objects.order_by("id")
    return [(letter.payload, letter.kind, letter.state) for letter in found]


def letter(payload):
    return next(each for each in DeadLetter.objects.all() if each.payload == payload)


def test_later_events_of_the_key_are_held_and_other_keys_go_on(script):
    assert script.payloads == [1, 3]
    assert letters() == [(1, "given_up", "open"), (2, "held", "open"), (4, "held", "open")]


def test_they_go_in_order_when_the_first_is_healed(bus, script):
    redrive([letter(1).pk], by="ada", using="default")
    publish("order.changed", 5, key="k")
    work(bus)

    assert script.payloads == [1, 3, 1, 2, 4, 5]
    assert {state for _, _, state in letters()} == {"healed"}


def test_they_go_in_order_when_the_first_is_discarded(bus, script):
    discard([letter(1).pk], reason="void", by="ada", using="default")
    assert release_held("default") == 2
    assert release_held("default") == 0
    work(bus)

    assert script.payloads == [1, 3, 2, 4]


def test_an_event_that_comes_while_they_are_on_their_way_is_behind_them(bus, script):
    discard([letter(1).pk], reason="void", by="ada", using="default")
    publish("order.changed", 5, key="k")
    bus.relay()
    release_held("default")
    work(bus)
    release_held("default")
    work(bus)

    assert script.payloads == [1, 3, 2, 4, 5]


def test_a_held_event_has_all_its_tries_and_holds_the_rest_if_they_fail(bus, script):
    script.errors[2] = [ValueError(), ValueError(), ValueError()]
    redrive([letter(1).pk], by="ada", using="default")
    work(bus)

    assert script.seen[2:] == [(1, 1), (2, 1), (2, 2), (2, 3)]
    assert letters() == [(1, "given_up", "healed"), (2, "failed", "open"), (4, "held", "open")]
    assert release_held("default") == 0


def test_a_re_drive_out_of_turn_is_held_again(bus, script):
    redrive([letter(4).pk, letter(2).pk], by="ada", using="default")
    work(bus)

    assert script.payloads == [1, 3]
    assert letters()[1:] == [(2, "held", "open"), (4, "held", "open")]


def test_all_of_a_key_may_be_re_driven_at_once(bus, script):
    redrive([letter(each).pk for each in (1, 2, 4)], by="ada", using="default")
    work(bus)

    assert script.payloads == [1, 3, 1, 2, 4]


def test_what_a_crash_left_held_is_found_by_the_relay(bus, script):
    redrive([letter(1).pk], by="ada", using="default")
    bus.relay()
    # The consumer of every queue: it handles, and knows nothing of what is held.
    assert bus.consume("o") == [Handled()]
    bus.relay_loop.plans.upkeep = Throttle(0)
    work(bus)

    assert script.payloads == [1, 3, 1, 2, 4]


@pytest.mark.postgres
def test_nobody_waits_for_a_handler_that_is_at_the_first_of_a_key(bus, script):
    redrive([letter(1).pk], by="ada", using="default")

    with locked_by_another(letter(1)), impatient(2000):
        assert release_held("default") == 0
    DeadLetter.objects.filter(pk=letter(1).pk).update(state="healed")
    with locked_by_another(letter(2)), impatient(2000):
        assert release_held("default") == 0

    assert release_held("default") == 2


def test_an_event_without_a_key_holds_nothing_and_is_not_held(bus, script):
    script.errors[6] = [GiveUp()]
    publish("order.changed", 6)
    publish("order.changed", 7)
    work(bus)

    assert script.payloads == [1, 3, 6, 7]


@pytest.mark.parametrize(
    ("holds", "option", "handled"),
    [(False, None, [1, 2]), (True, None, [1]), (True, False, [1, 2])],
)
def test_the_setting_counts_where_the_subscription_says_nothing(
    bus, settings, holds, option, handled
):
    settings.EVENTBUS = {**settings.EVENTBUS, "HOLD_KEYS": holds}
    script = Script()
    script.errors[1] = [GiveUp()]
    bus.subscribe("order.*", queue="o", name="o", ordered=True, hold_key=option)(script)
    publish("order.changed", 1, key="k")
    publish("order.changed", 2, key="k")
    work(bus)

    assert script.payloads == handled
