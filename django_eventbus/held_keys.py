"""Send back what was held behind a parked event of its key, when nothing is before it any more."""

from __future__ import annotations

from itertools import takewhile

from django.db import transaction

from django_eventbus.conf import conf
from django_eventbus.models import DeadLetter
from django_eventbus.redrive import Departure, send_back
from django_eventbus.subscriptions import registry

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
    tries = known.policy.tries if known else conf.redrive_tries
    with transaction.atomic(using=using):
        waiting = DeadLetter.objects.using(using).waiting_of(subscription, key)
        first = list(takewhile(_is_held, waiting.select_for_update()[:_AT_A_TIME]))
        departures = [Departure(letter=letter, message=letter.message()) for letter in first]
        if departures:
            send_back(departures, by=_BY, using=using, tries=tries)
    return len(first)


def _is_held(letter: DeadLetter) -> bool:
    return letter.kind == DeadLetter.Kind.HELD and letter.state == DeadLetter.State.OPEN
