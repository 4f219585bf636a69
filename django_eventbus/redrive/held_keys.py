"""Re-drive events that were held behind a parked event of their key, when it is closed."""

from __future__ import annotations

from itertools import takewhile

from django.db import transaction

from django_eventbus.conf import conf
from django_eventbus.models import DeadLetter
from django_eventbus.redrive.letters import LetterToSend, send_back, skip_locked
from django_eventbus.subscriptions.subscription import registry

#: The number of events of a key in one batch. The last of them releases the next batch.
_AT_A_TIME = 100
_BY = "eventbus"


def release_held(using: str) -> int:
    """Re-drive the held events that are now the first of their key; return their number."""
    held = DeadLetter.objects.using(using).filter(
        kind=DeadLetter.Kind.HELD, state=DeadLetter.State.OPEN
    )
    keys = held.order_by().values_list("subscription", "key").distinct()
    return sum(release_key(subscription, key, using) for subscription, key in list(keys))


def release_key(subscription: str, key: str, using: str) -> int:
    """Re-drive the first held dead letters of a key in their order; return their number."""
    known = registry.named(subscription)
    # A held event was never tried, so it gets the tries of a new event, not of a re-drive.
    tries = known.policy.tries if known else conf.redrive.tries
    with transaction.atomic(using=using):
        letters_to_send = [
            LetterToSend(letter=letter, message=letter.message())
            for letter in _first_held(subscription, key, using)
        ]
        if letters_to_send:
            send_back(letters_to_send, by=_BY, using=using, tries=tries)
    return len(letters_to_send)


def _first_held(subscription: str, key: str, using: str) -> list[DeadLetter]:
    """Lock and return the held dead letters before which no other event of the key waits."""
    waiting = DeadLetter.objects.using(using).waiting_of(subscription, key)
    held = waiting.filter(kind=DeadLetter.Kind.HELD, state=DeadLetter.State.OPEN)
    locked = {letter.pk: letter for letter in skip_locked(held)[:_AT_A_TIME]}
    # Query the order after the lock: an earlier dead letter may have been opened again.
    order = list(waiting.values_list("pk", flat=True)[:_AT_A_TIME]) if locked else []
    return [locked[key] for key in takewhile(locked.__contains__, order)]
