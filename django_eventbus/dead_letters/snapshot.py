"""
Freeze a selection at what could be seen, without a lock: nobody who parks waits for a reader.

On PostgreSQL a dead letter has the id of the transaction that parked it, and a snapshot has those
that had not committed. Time and id alone would not do: a row gets both before it can be seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any

from django.db import connections
from django.db.models import Max, Q
from django.utils import timezone
from django.utils.translation import gettext

from django_eventbus.dead_letters.filter_values import absolute, number
from django_eventbus.models import DeadLetter

#: The first and the last of some ids of transactions.
XidRange = tuple[int, int]

#: So many ranges fit into a URL.
_MAX_RANGES = 30

#: More than transactions and savepoints can be open that began after all that have ended.
_XIDS_AHEAD = 1_000_000

#: Longer than a transaction that parks stays open. What was parked before is seen, whatever its
#: xid: in a database that was restored from a dump, the ids are those of another server.
_LONGEST_PARKING = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What could be seen: nothing that was parked later, has a higher id, or was uncommitted."""

    at: datetime
    highest: int
    #: Transactions that may have been open; empty on SQLite, which has one writer at a time.
    uncommitted: tuple[XidRange, ...] = ()

    @classmethod
    def read(cls, text: str) -> Snapshot:
        """Read what str() wrote, or raise ValueError."""
        at, _, others = text.partition("~")
        highest, _, ranges = others.partition("~")
        written = ranges.split(",") if ranges else []
        try:
            if len(written) > _MAX_RANGES + 1:
                raise ValueError
            return cls(
                at=absolute(at),
                highest=number(highest, digits=18),
                uncommitted=tuple(map(_read_range, written)),
            )
        except ValueError:
            raise ValueError(
                gettext("this is not a snapshot of a list; remove this filter")
            ) from None

    def __str__(self) -> str:
        text = f"{self.at.isoformat()}~{self.highest}"
        ranges = ",".join(f"{first}-{last}" for first, last in self.uncommitted)
        return f"{text}~{ranges}" if ranges else text

    @property
    def condition(self) -> Q:
        """Return what it asks of a dead letter."""
        committed = Q(parked_at__lte=self.at, pk__lte=self.highest)
        if not self.uncommitted:
            return committed
        uncommitted = reduce(or_, (Q(parked_xid__range=each) for each in self.uncommitted))
        return committed & (Q(parked_at__lt=self.at - _LONGEST_PARKING) | ~uncommitted)


def _read_range(text: str) -> XidRange:
    first, _, last = text.partition("-")
    return number(first, digits=18), number(last, digits=18)


def parking_columns(using: str) -> dict[str, Any]:
    """Return when, by the clock that all hosts share, and in which transaction a row is parked."""
    if connections[using].vendor != "postgresql":
        return {"parked_at": timezone.now()}
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT pg_current_xact_id()::text, clock_timestamp()")
        xid, now = cursor.fetchone()
    return {"parked_at": now, "parked_xid": int(xid)}


def take_snapshot(using: str) -> Snapshot:
    """Return what can be seen now. Takes no lock, and waits for nobody."""
    if connections[using].vendor != "postgresql":
        highest = DeadLetter.objects.using(using).aggregate(highest=Max("pk"))["highest"]
        return Snapshot(at=timezone.now(), highest=highest or 0)
    table = connections[using].ops.quote_name(DeadLetter._meta.db_table)
    with connections[using].cursor() as cursor:
        # One statement, and so one view of the database; its time is before that.
        cursor.execute(
            "SELECT statement_timestamp(), pg_current_snapshot()::text, "  # noqa: S608
            f"pg_current_xact_id_if_assigned()::text, (SELECT max(id) FROM {table})"
        )
        now, xids, own, highest = cursor.fetchone()
    ranges = tuple(uncommitted_in(xids, int(own or 0)))
    return Snapshot(at=now, highest=highest or 0, uncommitted=ranges)


def uncommitted_in(snapshot: str, own: int) -> Iterator[XidRange]:
    """Return which transactions may be open, by a *snapshot* of PostgreSQL, except our *own*."""
    # A replica lists none below xmax: what is open there may be seen later, but not unnoticed,
    # since a dry run, which counts again, asks the primary.
    _xmin, xmax, listed = snapshot.split(":")
    # The oldest one by one: it may be a report of hours, and what was parked since is to be seen.
    opened = sorted(int(each) for each in listed.split(",") if each)
    rest = opened[_MAX_RANGES - 1 :]
    ranges = [(each, each) for each in opened[: _MAX_RANGES - 1]]
    # xmax is the first after all that have ended: what is open beyond is not listed.
    ranges.append((min([*rest, int(xmax)]), int(xmax) + _XIDS_AHEAD))
    for first, last in ranges:
        if not first <= own <= last:
            yield first, last
            continue
        # Tests park and read in one transaction, and see what they wrote.
        if first < own:
            yield first, own - 1
        yield own + 1, last
