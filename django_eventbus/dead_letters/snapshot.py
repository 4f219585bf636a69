"""
Freeze a selection at the rows that are visible now, without a lock that parking would wait for.

On PostgreSQL a dead letter has the id of the transaction that parked it, and a snapshot has the
transactions that were not committed. Time and id are not enough: a row gets both before it is
visible to others.
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

#: The first and the last of a range of transaction ids.
XidRange = tuple[int, int]

#: The number of ranges that fit into a URL.
_MAX_RANGES = 30

#: The transactions and savepoints that may be open above xmax; fewer exist in practice.
_XIDS_AHEAD = 1_000_000

#: No transaction that parks is open for so long, so older rows are visible whatever their xid.
#: In a database that was restored from a dump, the xids are those of another server.
_LONGEST_PARKING = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The visible rows: none that was parked later, has a higher id, or was not committed."""

    at: datetime
    highest: int
    #: The transactions that may have been open. Empty on SQLite, which has one writer at a time.
    uncommitted: tuple[XidRange, ...] = ()

    @classmethod
    def read(cls, text: str) -> Snapshot:
        """Parse the result of str(), or raise ValueError."""
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
        """The condition for dead letters of the snapshot."""
        committed = Q(parked_at__lte=self.at, pk__lte=self.highest)
        if not self.uncommitted:
            return committed
        uncommitted = reduce(or_, (Q(parked_xid__range=each) for each in self.uncommitted))
        return committed & (Q(parked_at__lt=self.at - _LONGEST_PARKING) | ~uncommitted)


def _read_range(text: str) -> XidRange:
    first, _, last = text.partition("-")
    return number(first, digits=18), number(last, digits=18)


def parking_columns(using: str) -> dict[str, Any]:
    """Return the transaction, and the time by the database's clock, which all hosts share."""
    if connections[using].vendor != "postgresql":
        return {"parked_at": timezone.now()}
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT pg_current_xact_id()::text, clock_timestamp()")
        xid, now = cursor.fetchone()
    return {"parked_at": now, "parked_xid": int(xid)}


def take_snapshot(using: str) -> Snapshot:
    """Return a snapshot of the visible dead letters. It takes no lock."""
    if connections[using].vendor != "postgresql":
        highest = DeadLetter.objects.using(using).aggregate(highest=Max("pk"))["highest"]
        return Snapshot(at=timezone.now(), highest=highest or 0)
    table = connections[using].ops.quote_name(DeadLetter._meta.db_table)
    with connections[using].cursor() as cursor:
        # In one statement, so that all values are of the same view; the time is slightly earlier.
        cursor.execute(
            "SELECT statement_timestamp(), pg_current_snapshot()::text, "  # noqa: S608
            f"pg_current_xact_id_if_assigned()::text, (SELECT max(id) FROM {table})"
        )
        now, xids, own, highest = cursor.fetchone()
    ranges = tuple(uncommitted_in(xids, int(own or 0)))
    return Snapshot(at=now, highest=highest or 0, uncommitted=ranges)


def uncommitted_in(snapshot: str, own: int) -> Iterator[XidRange]:
    """Yield the transactions that may be open in a *snapshot* of PostgreSQL, except our *own*."""
    # A replica lists no transactions below xmax, so rows of open ones may appear later. A dry run
    # shows that, because it counts again on the primary.
    _xmin, xmax, listed = snapshot.split(":")
    # The oldest get ranges of their own: one may be a report that runs for hours, and rows that
    # were parked since its start must be visible.
    opened = sorted(int(each) for each in listed.split(",") if each)
    rest = opened[_MAX_RANGES - 1 :]
    ranges = [(each, each) for each in opened[: _MAX_RANGES - 1]]
    # xmax is above all ended transactions. PostgreSQL does not list open ones above it.
    ranges.append((min([*rest, int(xmax)]), int(xmax) + _XIDS_AHEAD))
    for first, last in ranges:
        if not first <= own <= last:
            yield first, last
            continue
        # The own transaction sees its own rows, as in tests.
        if first < own:
            yield first, own - 1
        yield own + 1, last
