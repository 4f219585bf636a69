"""The truth after the storm, read from the database."""

from __future__ import annotations

import json
from collections import Counter

from django_eventbus import publish
from django_eventbus.models import DeadLetter, InboxRecord, OutboxEvent, QueuedMessage
from tests.shop.models import Effect
from tests.support.helpers import eventually

#: Settings for processes that are killed: leases that run out soon, and short waits.
QUICK = json.dumps(
    {
        "BROKER_OPTIONS": {"LEASE": "500ms"},
        "POLL_INTERVAL": "30ms",
        "RETRY_DELAYS": ["50ms", "100ms"],
    }
)
FAST = {"EVENTBUS_TEST_SETTINGS": QUICK}

#: What a handler is told to do, and whether that ends in an effect or in a dead letter.
ENDS_WELL = {"ok": True, "fail once": True, "come back": True, "fail": False, "give up": False}


def publish_acts():
    """Publish one event of each kind; return their ids with how they must end."""
    return {str(publish("act.now", {"do": do})): well for do, well in ENDS_WELL.items()}


def is_at_rest():
    """Whether nothing is on its way any more."""
    unsent = OutboxEvent.objects.exclude(state="published").exists()
    unsettled = InboxRecord.objects.filter(state__in=["started", "retrying", "deferred"]).exists()
    return not unsent and not unsettled and not QueuedMessage.objects.exists()


def come_to_rest(timeout=40):
    eventually(is_at_rest, timeout=timeout, message=whats_left)


def become_exactly_once(events, timeout=40):
    """Wait for it where the broker has messages that no table shows."""

    def is_true():
        try:
            assert_exactly_once(events)
        except AssertionError:
            return False
        return is_at_rest()

    eventually(is_true, timeout=timeout, message=whats_left)


def whats_left():
    inbox = list(InboxRecord.objects.values_list("subscription", "state", "round", "attempt"))
    queued = list(QueuedMessage.objects.values_list("queue", "headers", "deliveries"))
    outbox = list(OutboxEvent.objects.exclude(state="published").values_list("state", "error"))
    return f"inbox {inbox}\nqueued {queued}\noutbox {outbox}"


def assert_exactly_once(events):
    """Each event has one effect or one open dead letter, never both; its sibling one effect."""
    effects = Counter(Effect.objects.values_list("event_id", "subscription"))
    letters = Counter(DeadLetter.objects.filter(state="open").values_list("message_id", flat=True))
    for event_id, ends_well in events.items():
        assert effects[event_id, "shop.act"] == (1 if ends_well else 0)
        assert letters[event_id] == (0 if ends_well else 1)
        assert effects[event_id, "shop.witness"] == 1
    assert len(effects) == len(events) + sum(events.values())
