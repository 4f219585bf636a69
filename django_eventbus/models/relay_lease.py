"""Which relay may work, where the database has no row locks."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from django.db import models, transaction
from django.utils import timezone


class RelayLeaseQuerySet(models.QuerySet["RelayLease"]):
    """Taking and giving back the lease."""

    def take(self, holder: UUID, seconds: float) -> bool:
        """Take or renew the lease for *holder*; False while another holds it."""
        now = timezone.now()
        with transaction.atomic(using=self.db):
            lease, _ = self.get_or_create(id=1, defaults={"holder": holder, "expires_at": now})
            if lease.holder != holder and lease.expires_at > now:
                return False
            lease.holder, lease.expires_at = holder, now + timedelta(seconds=seconds)
            lease.save(using=self.db)
        return True

    def give_back(self, holder: UUID) -> None:
        self.filter(holder=holder).update(expires_at=timezone.now())


class RelayLease(models.Model):
    """One row: the relay that works, and until when if it does not come back."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    holder = models.UUIDField()
    expires_at = models.DateTimeField()

    objects = RelayLeaseQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.holder} until {self.expires_at:%H:%M:%S}"
