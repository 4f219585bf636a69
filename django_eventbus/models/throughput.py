"""How much was done in a minute."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from django.db import models

#: What is counted: a column each.
COUNTED = ("published", "handled", "retried", "parked")

Counts = Mapping[str, int]


class ThroughputQuerySet(models.QuerySet["Throughput"]):
    """Writing a worker's counts, and adding up everybody's."""

    def write(self, worker_id: UUID, minutes: Mapping[datetime, Counts]) -> None:
        """Write what *worker_id* has counted in each of *minutes* so far, in one statement."""
        # Whole counts, not what came since: written twice, they are still right.
        rows = [
            Throughput(worker_id=worker_id, minute=minute, **counts)
            for minute, counts in minutes.items()
        ]
        self.bulk_create(
            rows,
            update_conflicts=True,
            unique_fields=["worker_id", "minute"],
            update_fields=list(COUNTED),
        )

    def by_minute(self, since: datetime) -> dict[datetime, dict[str, int]]:
        """Return the sums over all workers of each minute in which anything was counted."""
        sums = {f"sum_{name}": models.Sum(name) for name in COUNTED}
        rows = self.filter(minute__gte=since).order_by("minute").values_list("minute")
        return {
            minute: dict(zip(COUNTED, counts, strict=True))
            for minute, *counts in rows.annotate(**sums)
        }


class Throughput(models.Model):
    """What one worker has done in one minute."""

    # No hot row: a worker writes to its own alone, beside its work and not in it.
    worker_id = models.UUIDField()
    minute = models.DateTimeField()
    published = models.PositiveIntegerField(default=0)
    handled = models.PositiveIntegerField(default=0)
    retried = models.PositiveIntegerField(default=0)
    parked = models.PositiveIntegerField(default=0)

    objects = ThroughputQuerySet.as_manager()

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=["worker_id", "minute"], name="eventbus_throughput_once"
            ),
        )
        indexes = (models.Index(fields=["minute"], name="eventbus_throughput_minute"),)

    def __str__(self) -> str:
        return f"{self.minute:%H:%M} of {self.worker_id}"
