"""How far back the inbox remembers."""

from __future__ import annotations

from datetime import datetime

from django.db import models

from django_eventbus.exceptions import TooOld


class InboxMarkQuerySet(models.QuerySet["InboxMark"]):
    """The mark only ever moves forward."""

    def before(self) -> datetime | None:
        """Return the time before which the inbox knows nothing, or None if it knows all."""
        return self.values_list("forgets_before", flat=True).first()

    def refuse_older(self, sent_at: datetime) -> None:
        """Raise TooOld if a record of a message sent then may have been pruned."""
        mark = self.before()
        if mark and sent_at < mark:
            raise TooOld(
                f"sent {sent_at:%Y-%m-%d %H:%M}, and the inbox was pruned up to "
                f"{mark:%Y-%m-%d %H:%M}: it may have been handled already"
            )

    def advance(self, cutoff: datetime) -> None:
        self.get_or_create(id=1, defaults={"forgets_before": cutoff})
        self.filter(id=1, forgets_before__lt=cutoff).update(forgets_before=cutoff)


class InboxMark(models.Model):
    """One row: settled inbox records older than this may have been pruned."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    forgets_before = models.DateTimeField()

    objects = InboxMarkQuerySet.as_manager()

    def __str__(self) -> str:
        return f"forgets before {self.forgets_before:%Y-%m-%d %H:%M}"
