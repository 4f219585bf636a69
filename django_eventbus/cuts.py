"""Cuts between what has been parked and what will be: a dead letter is on one side of each."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime

from django.db import OperationalError, connections, transaction
from django.db.models import Max
from django.utils import timezone

from django_eventbus.models import DeadLetter
from django_eventbus.selections import Cut

#: Shared by whoever parks, until its transaction ends; taken by whoever makes a cut.
_LOCK = 7_311_146_877_023_411_044
#: How long a page waits for those who are parking just now, who take milliseconds; and how often.
#: Not longer: whoever begins to park while a cut waits has to wait behind it.
_LONGEST = "100ms"
_TRIES = 3
_PAUSE = 0.05


def time_of_parking(using: str) -> datetime:
    """Return the time by the database's clock. Nobody makes a cut before the transaction ends."""
    # Ids are given out before the rows can be seen, and clocks of hosts differ: without the lock
    # and the one clock, what is parked just now could be on both sides of a cut.
    if connections[using].vendor == "postgresql":
        with connections[using].cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock_shared(%s)", [_LOCK])
    return _now(using)


def make_cut(using: str) -> Cut:
    """Return where to cut now: everything up to there can be seen by now."""
    if connections[using].vendor == "postgresql":
        for _ in range(_TRIES):
            with suppress(OperationalError), transaction.atomic(using=using):
                return _cut_alone(using)
            time.sleep(_PAUSE)
    # A parking that takes that long is left to luck; the page is not.
    return _cut(using)


def _cut_alone(using: str) -> Cut:
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [_LONGEST])
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
    cut = _cut(using)
    # Which gives the lock back at once: the transaction around this may be the whole request's.
    transaction.set_rollback(True, using=using)
    return cut


def _cut(using: str) -> Cut:
    now = _now(using)
    highest = DeadLetter.objects.using(using).aggregate(highest=Max("pk"))["highest"]
    return Cut(at=now, highest=highest or 0)


def _now(using: str) -> datetime:
    """Return the time by the one clock that all hosts share; with SQLite there is one host."""
    if connections[using].vendor != "postgresql":
        return timezone.now()
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now
