"""Whose turn it is on an ordered queue."""

from __future__ import annotations

from django_eventbus.exceptions import KeyHeld
from django_eventbus.messages import KEY, Message
from django_eventbus.models import DeadLetter, InboxRecord
from django_eventbus.outages import proven
from django_eventbus.outcomes import Duplicate
from django_eventbus.subscriptions import Subscription


def in_turn(subscription: Subscription, message: Message) -> Duplicate | Message:
    """Return *message* as it is to be tried now: after a crash, an ordered one comes as it first was."""
    if not subscription.ordered:
        return message
    with proven(subscription.using):
        records = InboxRecord.objects.using(subscription.using)
        return records.in_turn(subscription.record_name, message)


def refuse_held(subscription: Subscription, message: Message) -> None:
    """Raise KeyHeld if an earlier event of the key of *message* is parked, and keys are held."""
    key = message.text(KEY)
    if not key or not subscription.holds_keys:
        return
    letters = DeadLetter.objects.using(subscription.using)
    first = letters.waiting_of(subscription.record_name, key).first()
    # Its own, if it is the first: then it is re-driven, and nothing is before it.
    if first and first.message_id != message.id:
        raise KeyHeld("an earlier event of its key is parked")
