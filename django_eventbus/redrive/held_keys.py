"""Send back what was held behind a parked event of its key, when nothing is before it any more."""

from __future__ import annotations

from itertools import takewhile

from django.db import transaction

from django_eventbus.conf import conf
from django_eventbus.models import DeadLetter
from django_eventbus.redrive.letters import LetterToSend, send_back, skip_locked
from django_eventbus.subscriptions.subscription import registry

#: How many of a key go at a time; the last of them brings the next.
_AT_A_TIME = 100
_BY = "eventbus"


def release_held(using: str) -> int:
    """Send back what is the first of its key by now; return how many."""
    held = DeadLetter.objects.using(using).filter(
        kind=DeadLetter.Kind.HELD, state=DeadLetter.State.OPEN
    )
    keys = held.order_by().values_list("subscription", "key").distinct()
    return sum(release_key(subscription, key, using) for subscription, key in list(keys))


def release_key(subscription: str, key: str, using: str) -> int:
    """Send back, in their order, the held dead letters of a key that are the first of it."""
    known = registry.named(subscription)
    # It was never tried, so it has as many tries as any other.
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
    """Lock and return the held dead letters of a key that nothing waits before."""
    waiting = DeadLetter.objects.using(using).waiting_of(subscription, key)
    held = waiting.filter(kind=DeadLetter.Kind.HELD, state=DeadLetter.State.OPEN)
    locked = {letter.pk: letter for letter in skip_locked(held)[:_AT_A_TIME]}
    # Asked after the lock: what comes before them may have been opened again meanwhile.
    order = list(waiting.values_list("pk", flat=True)[:_AT_A_TIME]) if locked else []
    return [locked[key] for key in takewhile(locked.__contains__, order)]
